// Drafts that must not be used with a target, each refused with the reason; `inspect --draft` and a
// load say the same.

#include <gtest/gtest.h>

#include <functional>

#include "drafthouse/engine.h"
#include "engine/pairing.h"
#include "tests/draft_folder.h"

namespace drafthouse {
namespace {

using test::CheckpointFolder;

// A random target of 6 layers; drafts of tiny-drafts were made for such ones.
const char* const kTarget = "tiny/gemma4-e";

std::string draft_folder(const std::string& name) {
  return test::data_path("tiny-drafts/" + name + "/draft");
}

struct Broken {
  const char* what;
  const char* base;
  std::function<void(CheckpointFolder&)> change;
  const char* reason;
};

// Halves the rows of a matrix.
void halve(CheckpointFolder::Tensor& tensor) {
  tensor.shape[0] /= 2;
  tensor.bytes.resize(tensor.bytes.size() / 2);
}

std::vector<Broken> broken_pairings() {
  using Folder = CheckpointFolder;
  const auto set = [](const char* key, nlohmann::json value) {
    return [key, value](Folder& f) { f.config[key] = value; };
  };
  const auto set_inner = [](const char* key, nlohmann::json value) {
    return [key, value](Folder& f) { f.config["dflash_config"][key] = value; };
  };
  const auto taps = [&](nlohmann::json ids) { return set_inner("target_layer_ids", ids); };
  return {
      // Taps.
      {"no list of taps", "v1-full",
       [](Folder& f) { f.config["dflash_config"].erase("target_layer_ids"); },
       "target_layer_ids is missing"},
      {"a tap behind the last layer", "v1-full", taps({1, 3, 6}), "target_layer_ids names layer 6"},
      {"a tap of a larger target", "v1-full",
       [](Folder& f) {
         f.config.erase("num_target_layers");
         f.config["dflash_config"]["target_layer_ids"] = {1, 3, 30};
       },
       "target_layer_ids names layer 30, the target has 6"},
      {"one tap twice", "v1-full", taps({1, 3, 3}), "target_layer_ids [1, 3, 3] must ascend"},
      {"taps in another order", "v1-full", taps({4, 3, 1}),
       "target_layer_ids [4, 3, 1] must ascend"},
      {"a tap too few", "v1-full", taps({1, 3}), "fc.weight has shape [64, 192]"},
      {"a tap of the embedding", "speculators", set("aux_hidden_state_layer_ids", {0, 4, 5}),
       "aux_hidden_state_layer_ids holds 0"},
      // The target's shape.
      {"another depth", "v1-swa", {}, "num_target_layers is 12, the target has 6"},
      {"another width", "v1-full", set("hidden_size", 128), "hidden_size is 128, the target's"},
      {"taps of another width", "speculators", set("target_hidden_size", 32),
       "target_hidden_size is 32, the target's hidden_size is 64"},
      {"another vocabulary", "v1-full", set("vocab_size", 300),
       "vocab_size is 300, the target's is 256"},
      // Block and mask.
      {"no mask", "v1-full", [](Folder& f) { f.config["dflash_config"].erase("mask_token_id"); },
       "mask_token_id is missing"},
      {"a mask outside the vocabulary", "v1-full", set_inner("mask_token_id", 256),
       "mask_token_id 256"},
      {"a block of one", "v1-full", set("block_size", 1), "block_size"},
      {"a block that no pass takes", "v1-full", set("block_size", 200), "block_size is 200"},
      {"masks that contradict each other", "v1-causal-flag", set_inner("causal", false),
       "causal is false"},
      // Kinds that are mixed up.
      {"DFlash2 that calls itself v1", "dflash2",
       [](Folder& f) {
         f.config["architectures"] = {"DFlashDraftModel"};
         for (const char* key :
              {"conv_group_size", "conv_kernel_size", "selector_rank", "selector_top_k"}) {
           f.config["dflash_config"].erase(key);
         }
       },
       "makes this a DFlash2 draft, but architectures says \"DFlashDraftModel\""},
      {"DFlash2 whose class was overwritten", "dflash2", set("architectures", {"DFlashDraftModel"}),
       "selector_rank is there, as in a DFlash2 draft"},
      {"v1 that calls itself DFlash2", "v1-full",
       [](Folder& f) {
         f.config["architectures"] = {"DFlash2DraftModel"};
         f.config["dflash_config"].update({{"conv_group_size", 16},
                                           {"conv_kernel_size", 2},
                                           {"selector_rank", 8},
                                           {"selector_top_k", 4}});
       },
       "no tensors of a candidate selector"},
      {"half of a DFlash2 draft", "dflash2",
       [](Folder& f) {
         std::erase_if(f.tensors,
                       [](const auto& t) { return t.first.find("_conv.") != t.first.npos; });
       },
       "no tensors of a convolution"},
      {"a selector for another vocabulary", "dflash2",
       [](Folder& f) { halve(f.tensors["candidate_selector.predecessor_codebook"]); },
       "candidate_selector.predecessor_codebook has shape [128, 8]"},
      {"groups that do not divide", "dflash2", set_inner("conv_group_size", 10),
       "conv_group_size 10"},
      {"DSpark by its class", "v1-full", set("architectures", {"Qwen3DSparkModel"}),
       "Qwen3DSparkModel"},
      {"DSpark by its tensors", "v1-full",
       [](Folder& f) { f.tensors["markov_head.markov_w1.weight"] = f.tensors["fc.weight"]; },
       "makes this a DSpark draft"},
      {"anchor first", "v1-full", set("sample_from_anchor", true), "sample_from_anchor"},
      {"another speculator", "speculators", set("speculators_model_type", "eagle3"),
       "speculators_model_type \"eagle3\""},
      // Vocabularies of their own.
      {"a map of ids without a head", "v1-full",
       [](Folder& f) {
         f.config["draft_vocab_size"] = 96;
         f.tensors["d2t"] = {"I64", {96}, std::string(96 * 8, '\0')};
       },
       "'lm_head.weight' is missing"},
      {"the target's head in place of its own", "speculators",
       [](Folder& f) { f.tensors["lm_head.weight"] = f.tensors["embed_tokens.weight"]; },
       "lm_head.weight has shape [256, 64], but the configuration needs [96, 64]"},
      {"no map of ids", "speculators", [](Folder& f) { f.tensors.erase("d2t"); },
       "tensor 'd2t', which says which ids they are, is missing"},
      {"a map of another draft", "speculators",
       [](Folder& f) {
         std::string& flags = f.tensors["t2d"].bytes;
         std::reverse(flags.begin(), flags.end());
       },
       "d2t and t2d disagree about id"},
      {"a map out of range", "speculators",
       [](Folder& f) { f.tensors["d2t"].bytes[95 * 8 + 1] = 1; }, "entry 95 of tensor d2t"},
      // Layers and tensors.
      {"a tensor missing", "v1-full",
       [](Folder& f) { f.tensors.erase("layers.1.mlp.up_proj.weight"); },
       "tensor layers.1.mlp.up_proj.weight is missing"},
      {"more layers than said", "v1-full",
       [](Folder& f) {
         f.config["num_hidden_layers"] = 2;
         f.config["layer_types"].erase(2);
       },
       "there is a tensor layers.2"},
      {"a type of layer too few", "v1-full", [](Folder& f) { f.config["layer_types"].erase(2); },
       "layer_types"},
      {"sliding layers without a window", "v1-causal-flag", set("sliding_window", nullptr),
       "sliding_window"},
      {"biases", "v1-full", set("attention_bias", true), "attention biases"},
      {"a mask embedding", "v1-full",
       [](Folder& f) { f.tensors["mask_embedding"] = f.tensors["norm.weight"]; }, "mask embedding"},
  };
}

// What a load says of the pair, after making sure that inspecting it says the same.
std::string verdict_of(const std::string& target, const std::string& draft) {
  const Result<Checkpoint> opened = Checkpoint::open(draft);
  const auto loaded = Engine::load({.target = target, .draft = draft, .threads = 1, .context = 64});
  if (loaded.ok()) return "";
  if (!opened.ok()) {
    EXPECT_EQ(loaded.status().message(), opened.status().message());
    return opened.status().message();
  }
  const PairingVerdict verdict = check_pairing(Checkpoint::open(target).value(), opened.value());
  EXPECT_FALSE(verdict.status.ok());
  if (verdict.status.ok()) return "";
  EXPECT_EQ(loaded.status().message(), verdict.status.message());
  EXPECT_EQ(loaded.status().code(), verdict.status.code());
  return verdict.status.message();
}

TEST(Pairings, WrongDraftsAreRefusedWithTheReason) {
  const std::string target = test::data_path(kTarget);
  ASSERT_FALSE(target.empty());
  for (const Broken& broken : broken_pairings()) {
    SCOPED_TRACE(broken.what);
    testing::TempFolder folder;
    CheckpointFolder draft = CheckpointFolder::read(draft_folder(broken.base));
    if (broken.change) broken.change(draft);
    draft.write(folder / "draft");
    const std::string said = verdict_of(target, folder / "draft");
    EXPECT_NE(said.find(broken.reason), std::string::npos) << said;
  }
}

TEST(Pairings, FilesThatAreCutOrOfAnotherKindAreRefused) {
  const std::string target = test::data_path(kTarget);
  const auto expect = [](const std::string& said, const char* reason) {
    EXPECT_NE(said.find(reason), std::string::npos) << said;
  };
  testing::TempFolder folder;
  CheckpointFolder::read(draft_folder("v1-full")).write(folder / "draft");
  const std::string weights = folder / "draft/model.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) - 1);
  expect(verdict_of(target, folder / "draft"), "model.safetensors");
  std::filesystem::resize_file(weights, 0);
  expect(verdict_of(target, folder / "draft"), "model.safetensors");
  expect(verdict_of(target, target), "is not a DFlash draft");
  expect(verdict_of(draft_folder("v1-full"), draft_folder("v1-full")), "cannot answer alone");
}

// A family that would leave such weights out answers, with other text.
TEST(Targets, WeightsOfAnotherFamilyAreRefused) {
  const auto said = [](const std::string& name, const char* family) {
    testing::TempFolder folder;
    CheckpointFolder target = CheckpointFolder::read(test::data_path("tiny/" + name));
    target.config["model_type"] = family;
    target.config["architectures"] = nlohmann::json::array();
    target.write(folder / "target");
    const auto loaded = Engine::load({.target = folder / "target", .threads = 1, .context = 64});
    return loaded.ok() ? "" : loaded.status().message();
  };
  const auto names = [&](const std::string& name, const char* family, const char* tensor) {
    const std::string message = said(name, family);
    EXPECT_NE(message.find(tensor), std::string::npos) << message;
    EXPECT_NE(message.find("is model_type"), std::string::npos) << message;
  };
  EXPECT_EQ(said("qwen3", "qwen3"), "");
  names("qwen3", "llama", "q_norm.weight");
  names("qwen2", "llama", "q_proj.bias");
}

TEST(Pairings, UnknownTensorsAreListed) {
  testing::TempFolder folder;
  CheckpointFolder draft = CheckpointFolder::read(draft_folder("v1-full"));
  draft.tensors["another.weight"] = draft.tensors["norm.weight"];
  draft.write(folder / "draft");
  const PairingVerdict verdict = check_pairing(Checkpoint::open(test::data_path(kTarget)).value(),
                                               Checkpoint::open(folder / "draft").value());
  ASSERT_TRUE(verdict.status.ok()) << verdict.status.message();
  ASSERT_EQ(verdict.notes.size(), 1u);
  EXPECT_NE(verdict.notes[0].find("another.weight"), std::string::npos);
}

}  // namespace
}  // namespace drafthouse
