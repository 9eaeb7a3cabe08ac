// Hooks as plugins and engines meet them: plugins from files, engines that use them, what is
// refused. src/device/hook_registry_test.cc has the statements about slots and owners without
// either.

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <string>

#include "device/hook_registry.h"
#include "drafthouse/engine.h"
#include "drafthouse/host.h"
#include "engine/internals.h"
#include "tests/test_data.h"

namespace drafthouse {
namespace {

std::string plugin(const std::string& name) {
  return std::string(DRAFTHOUSE_TEST_HOOKS_FOLDER) + "/hook_" + name + ".so";
}
bool is_mapped(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(path) != std::string::npos) return true;
  }
  return false;
}

EngineOptions quantised(std::vector<std::string> plugins = {}) {
  return {.target = test::data_path("models/nano-qwen3/gguf/nano-qwen3.Q8_0.gguf"),
          .draft = test::data_path("models/nano-qwen3/draft"),
          .threads = 2,
          .context = 256,
          .hook_plugins = std::move(plugins)};
}
EngineOptions bfloat(std::vector<std::string> plugins = {}) {
  EngineOptions options = quantised(std::move(plugins));
  options.target = test::data_path("models/nano-qwen3/target");
  return options;
}

std::unique_ptr<Engine> load(const EngineOptions& options) {
  Result<std::unique_ptr<Engine>> engine = Engine::load(options);
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  return engine.ok() ? std::move(engine).value() : nullptr;
}

std::vector<std::uint32_t> prompt() {
  auto ids =
      test::read_json(test::data_path("models/nano-qwen3/golden.json"))["cases"][0]["prompt_ids"]
          .get<std::vector<std::uint32_t>>();
  if (ids.size() > 48) ids.resize(48);
  return ids;
}

std::vector<std::uint32_t> generate(Engine& engine, std::uint32_t width) {
  const Result<GenerateResult> result = engine.generate(
      {.prompt_ids = prompt(), .max_tokens = 24, .width = width, .ignore_eos = true});
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.status().message());
  return result.ok() ? result.value().ids : std::vector<std::uint32_t>();
}

std::vector<double> score(Engine& engine, std::uint32_t width) {
  const Result<ScoreResult> result = engine.score({.ids = prompt(), .width = width});
  EXPECT_TRUE(result.ok());
  return result.ok() ? result.value().logprob : std::vector<double>();
}

std::string digest(Engine& engine) { return engine.internals().hooks.binding.digest_text(); }

// Every test ends with the process as it was.
class Hooks : public testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(HookRegistry::process().installed().empty()); }
  HookRegistry& registry() { return HookRegistry::process(); }

  void expect_refused(const std::string& name, Code code, std::string_view word) {
    const Result<std::unique_ptr<Engine>> engine = Engine::load(quantised({plugin(name)}));
    ASSERT_FALSE(engine.ok()) << name;
    EXPECT_EQ(engine.status().code(), code) << engine.status().message();
    EXPECT_NE(engine.status().message().find(word), std::string::npos) << engine.status().message();
    EXPECT_FALSE(is_mapped(plugin(name)));
  }
};

TEST_F(Hooks, AnExactHookForOneWidthChangesNoId) {
  auto plain = load(quantised());
  auto hooked = load(quantised({plugin("example")}));
  ASSERT_TRUE(plain != nullptr && hooked != nullptr);
  EXPECT_TRUE(plain->info().hooks.empty());
  ASSERT_EQ(hooked->info().hooks.size(), 1u);
  const EngineHook& hook = hooked->info().hooks[0];
  EXPECT_EQ(hook.operation, "matmul[q8_0,int8]");
  EXPECT_EQ(hook.name, "example");
  EXPECT_EQ(hook.version, "1.0");
  EXPECT_TRUE(hook.exact);
  EXPECT_EQ(hook.widths, "1");
  const std::vector<std::uint32_t> expected = generate(*plain, 1);
  for (const std::uint32_t width : {1u, 4u, 16u, 0u}) {
    EXPECT_EQ(generate(*hooked, width), expected) << "width " << width;
  }
  EXPECT_EQ(score(*hooked, 1), score(*plain, 7));
  EXPECT_EQ(digest(*hooked), "");
  EXPECT_EQ(hooked->internals().state.target, plain->internals().state.target);
}

std::atomic<int> calls{0};
void counted_copy(const void* job) {
  ++calls;
  const auto& j = *static_cast<const dh_hook_capture_tap_job*>(job);
  for (std::size_t row = 0; row < j.rows; ++row) {
    std::memcpy(j.out + row * j.out_stride, j.stream + row * j.stream_stride, j.width * 4);
  }
}
void counted_argmax(const void* job) {
  ++calls;
  const auto& j = *static_cast<const dh_hook_argmax_job*>(job);
  *j.index = reference_kernels().argmax(j.values, j.count);
}

// An embedder's own functions need no plugin. They are called, and the others are not.
TEST_F(Hooks, AnEmbeddersHooksRunInLaterLoadsOnly) {
  auto before = load(quantised());
  Result<HookClaim> claim = registry().claim(
      {{.slot = HookSlot::capture_tap(), .name = "here", .version = "1", .function = counted_copy},
       {.slot = HookSlot::argmax(), .name = "here", .version = "1", .function = counted_argmax}});
  ASSERT_TRUE(claim.ok()) << claim.status().message();
  auto after = load(quantised());
  ASSERT_TRUE(before != nullptr && after != nullptr);
  EXPECT_EQ(after->info().hooks.size(), 2u);
  calls = 0;
  const std::vector<std::uint32_t> expected = generate(*before, 8);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(generate(*after, 8), expected);
  EXPECT_GT(calls, 48);
}

TEST_F(Hooks, WidthsAgreeAmongThemselvesWithAnApproximateHook) {
  auto plain = load(bfloat());
  auto hooked = load(bfloat({plugin("approximate")}));
  ASSERT_TRUE(plain != nullptr && hooked != nullptr);
  const std::vector<std::uint32_t> expected = generate(*hooked, 1);
  for (const std::uint32_t width : {3u, 16u, 0u}) {
    EXPECT_EQ(generate(*hooked, width), expected) << "width " << width;
  }
  const std::vector<double> logprob = score(*hooked, 1);
  EXPECT_EQ(score(*hooked, 5), logprob);
  EXPECT_EQ(score(*hooked, 16), logprob);
  EXPECT_NE(score(*plain, 1), logprob) << "the hook did not run";
  EXPECT_NE(hooked->internals().state.target, plain->internals().state.target);
  EXPECT_EQ(digest(*plain), "");
  EXPECT_EQ(digest(*hooked),
            "attend_page[bf16]=test-doubles@1.0;matmul[bf16,bf16]=test-doubles@1.0");
}

TEST_F(Hooks, RefusedAtTheGateApproximateForOneWidth) {
  expect_refused("one_width", Code::unsupported, "must serve all");
}

TEST_F(Hooks, RefusedAtTheGateWrongResults) {
  expect_refused("wrong", Code::invalid_argument, "other bits");
}

TEST_F(Hooks, RefusedAnotherAbi) { expect_refused("other_abi", Code::unsupported, "hook ABI 2"); }

TEST_F(Hooks, RefusedWhatIsNoPlugin) {
  expect_refused("no_entry", Code::unsupported, "dh_hook_plugin");
  expect_refused("missing", Code::not_found, "missing");
  const std::string text = test::data_path("models/nano-qwen3/golden.json");
  const std::string path = std::filesystem::absolute(text);
  EXPECT_EQ(registry().load_plugin(path).status().code(), Code::unsupported);
}

TEST_F(Hooks, Hook2_ASecondLoadOfThePluginIsCounted) {
  auto one = load(quantised({plugin("example")}));
  auto two = load(quantised({plugin("example"), plugin("example")}));
  ASSERT_TRUE(one != nullptr && two != nullptr);
  ASSERT_EQ(registry().installed().size(), 1u);
  EXPECT_EQ(registry().installed()[0].claims, 2u);
  EXPECT_EQ(registry().installed()[0].bindings, 2u);
  one.reset();
  EXPECT_EQ(registry().installed()[0].claims, 1u);
}

TEST_F(Hooks, Hook3_TheSameNameFromAnotherLibraryIsAConflict) {
  auto engine = load(quantised({plugin("example")}));
  expect_refused("example_copy", Code::conflict, "another function");
  EXPECT_EQ(registry().installed().size(), 1u);
}

TEST_F(Hooks, Gap3_AnotherOwnerIsAConflictAndNothingIsHalfInstalled) {
  auto engine = load(quantised({plugin("example")}));
  ASSERT_NE(engine, nullptr);
  const std::vector<std::uint32_t> expected = generate(*engine, 8);
  // Its rotation is free to take; its product belongs to the example.
  expect_refused("other_owner", Code::conflict, "test-other@1.0");
  ASSERT_EQ(registry().installed().size(), 1u);
  EXPECT_EQ(registry().installed()[0].hook.owner(), "example@1.0");
  // Two plugins of one load are one step, too.
  const EngineOptions both = quantised({plugin("approximate"), plugin("other_owner")});
  EXPECT_EQ(Engine::load(both).status().code(), Code::conflict);
  EXPECT_EQ(registry().installed().size(), 1u);
  EXPECT_FALSE(is_mapped(plugin("approximate")));
  EXPECT_EQ(generate(*engine, 8), expected);
}

TEST_F(Hooks, Gap1_ReleaseWhileInUseIsBusyAndTheLastOneRestores) {
  Result<HookClaim> claim = registry().load_plugin(plugin("other_owner"));
  ASSERT_TRUE(claim.ok()) << claim.status().message();
  EXPECT_EQ(claim.value().installed(), 2u);
  auto engine = load(quantised());
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->info().hooks.size(), 2u);
  EXPECT_EQ(claim.value().release().code(), Code::busy);
  const std::vector<std::uint32_t> hooked = generate(*engine, 8);
  engine.reset();
  EXPECT_TRUE(claim.value().release().ok());
  EXPECT_FALSE(is_mapped(plugin("other_owner")));
  engine = load(quantised());
  EXPECT_TRUE(engine->info().hooks.empty());
  EXPECT_EQ(generate(*engine, 8), hooked);
}

// The engine that brought the plugin may go first.
TEST_F(Hooks, APluginStaysWhileAnyEngineUsesIt) {
  auto first = load(quantised({plugin("example")}));
  auto second = load(quantised());
  ASSERT_TRUE(first != nullptr && second != nullptr);
  const std::vector<std::uint32_t> expected = generate(*first, 1);
  first.reset();
  EXPECT_TRUE(is_mapped(plugin("example")));
  EXPECT_EQ(generate(*second, 1), expected);
  second.reset();
  EXPECT_FALSE(is_mapped(plugin("example")));
}

TEST_F(Hooks, AHostClaimsItsPluginsBeforeAnyModelAndGivesThemBack) {
  HostOptions options;
  options.threads = 1;
  options.hook_plugins = {plugin("example")};
  Result<std::unique_ptr<Host>> host = Host::create(options);
  ASSERT_TRUE(host.ok()) << host.status().message();
  ASSERT_EQ(registry().installed().size(), 1u);
  // Another host may ask for the same, but not for the slot.
  EXPECT_TRUE(Host::create(options).ok());
  options.hook_plugins = {plugin("other_owner")};
  EXPECT_EQ(Host::create(options).status().code(), Code::conflict);
  host.value().reset();
  EXPECT_TRUE(registry().installed().empty());
}

// Case R060: a load that fails after its hooks were claimed leaves nothing behind.
TEST_F(Hooks, R060_AFailedLoadLeavesNoHook) {
  auto other = load(quantised());
  ASSERT_NE(other, nullptr);
  const std::vector<std::uint32_t> expected = generate(*other, 0);
  EngineOptions broken = quantised({plugin("example")});
  broken.context = 1u << 20;
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(Engine::load(broken).status().code(), Code::invalid_argument);
    EXPECT_TRUE(registry().installed().empty());
    EXPECT_FALSE(is_mapped(plugin("example")));
  }
  EXPECT_EQ(generate(*other, 0), expected);
}

}  // namespace
}  // namespace drafthouse
