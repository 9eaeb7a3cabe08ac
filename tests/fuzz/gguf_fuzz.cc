#include "formats/byte_source.h"
#include "formats/gguf.h"
#include "formats/gguf_config.h"
#include "formats/gguf_names.h"
#include "formats/tokenizer_files.h"
#include "input.h"

// The header, and everything that is read from its metadata. What is accepted lies inside the file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace drafthouse;
  const fuzz::FileHead file(data, size);
  const MemorySource source(file.head, file.size, "fuzz.gguf");
  auto parsed = parse_gguf(source);
  if (!parsed.ok()) return 0;
  GgufFile& gguf = parsed.value();
  for (TensorInfo& tensor : gguf.tensors) {
    if (tensor.bytes > file.size || tensor.offset > file.size - tensor.bytes) __builtin_trap();
    tensor.file_name = tensor.name;
  }
  name_tensors(gguf.metadata, gguf.tensors);
  std::sort(gguf.tensors.begin(), gguf.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  const GgufModel model{"fuzz.gguf", gguf.metadata, gguf.tensors};
  (void)model_config_from_gguf(model);
  (void)draft_config_from_gguf(model);
  (void)gguf_text("fuzz.gguf", gguf.metadata);
  return 0;
}
