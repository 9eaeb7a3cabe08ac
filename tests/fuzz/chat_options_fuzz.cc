#include <string>

#include "input.h"
#include "text/chat_options.h"
#include "text/tool_call.h"

// Template variables, tools and documents as JSON, then a template's source, separated by zero
// bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace drafthouse;
  const auto parts = fuzz::split(fuzz::as_text(data, size), 4);
  const ChatOptions options{.variables = std::string(parts[0]),
                            .tools = std::string(parts[1]),
                            .documents = std::string(parts[2])};
  (void)check_chat_options(options);
  if (!too_deep(parts[1]) && check_tools(parts[1]).ok()) (void)ToolTypes(options.tools);
  for (const char* name : {"enable_thinking", "tools", "x"}) (void)template_names(parts[3], name);
  return 0;
}
