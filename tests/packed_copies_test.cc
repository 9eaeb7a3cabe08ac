// Packed weights that a folder keeps: the second load takes them, computes the same bits, and takes
// nothing that it cannot trust.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "drafthouse/engine.h"
#include "engine/internals.h"
#include "formats/test_files.h"
#include "tests/test_data.h"

namespace drafthouse {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;

// What a load is: its bits, and what it said.
struct Load {
  std::vector<double> logprobs;
  Sha256Digest weights{};
  std::string state;
  std::size_t weight_bytes = 0;
  std::string log;
};

Load load(const std::string& model, const std::string& copies) {
  Load out;
  EngineOptions options{.target = model, .packed_directory = copies};
  options.log = [&out](std::string_view line) { out.log.append(line).append("\n"); };
  Result<std::unique_ptr<Engine>> engine = Engine::load(options);
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  if (!engine.ok()) return out;
  const Engine::Internals& parts = engine.value()->internals();
  out.weights = parts.target->weights_digest();
  out.state = parts.state.target.hex();
  out.weight_bytes = parts.bytes(MemoryTag::weights);
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = 0; i < 90; ++i) ids.push_back((i * 71 + i * i) % 256);
  const Result<ScoreResult> score = engine.value()->score({.ids = ids, .width = 16});
  EXPECT_TRUE(score.ok());
  if (score.ok()) out.logprobs = score.value().logprob;
  return out;
}

void expect_same(const Load& got, const Load& want) {
  EXPECT_EQ(got.logprobs, want.logprobs);
  EXPECT_EQ(got.weights, want.weights);
  EXPECT_EQ(got.state, want.state);
  EXPECT_EQ(got.weight_bytes, want.weight_bytes);
}

// The copies in a folder.
std::vector<std::string> copies_in(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".packed") found.push_back(entry.path().string());
  }
  return found;
}

// A tiny checkpoint of its own, which a test may change.
std::string copy_of(const char* name, const TempFolder& folder) {
  const std::string path = folder / name;
  fs::copy(test::data_path("tiny/" + std::string(name)), path);
  fs::permissions(path, fs::perms::owner_all);
  for (const auto& file : fs::directory_iterator(path)) {
    fs::permissions(file.path(), fs::perms::owner_read | fs::perms::owner_write);
  }
  return path;
}

void change_byte(const std::string& path, std::uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 4);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

TEST(PackedCopies, TheSecondLoadTakesThem) {
  for (const char* name : {"qwen3", "qwen3_moe", "gemma4-e", "qwen3_5", "lfm2"}) {
    SCOPED_TRACE(name);
    TempFolder folder;
    const std::string model = test::data_path("tiny/" + std::string(name));
    const std::string copies = folder / "copies";
    const Load plain = load(model, "");
    const Load first = load(model, copies);
    expect_same(first, plain);
    const auto files = copies_in(copies);
    ASSERT_EQ(files.size(), 1u);
    struct stat info{};
    ASSERT_EQ(::stat(files[0].c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600u);
    EXPECT_EQ(::stat(copies.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700u);
    const auto written = fs::last_write_time(files[0]);
    const Load second = load(model, copies);
    expect_same(second, plain);
    EXPECT_EQ(second.log, "");
    EXPECT_EQ(fs::last_write_time(files[0]), written);
    EXPECT_EQ(copies_in(copies), files);
  }
}

TEST(PackedCopies, APairHasOneForEachModel) {
  TempFolder folder;
  const std::string root = test::data_path("models/nano-qwen3");
  EngineOptions options{.target = root + "/target", .draft = root + "/draft"};
  const auto golden = test::read_json(root + "/golden.json")["cases"][0];
  GenerateRequest request{.prompt_ids = golden["prompt_ids"].get<std::vector<std::uint32_t>>(),
                          .max_tokens = 40,
                          .width = 8};
  const auto want = Engine::load(options).value()->generate(request).value();
  options.packed_directory = folder / "copies";
  for (int time = 0; time < 2; ++time) {
    const auto got = Engine::load(options).value()->generate(request).value();
    EXPECT_EQ(got.ids, want.ids);
    EXPECT_EQ(got.accepted_per_turn, want.accepted_per_turn);
  }
  EXPECT_EQ(copies_in(options.packed_directory).size(), 2u);
}

TEST(PackedCopies, WhatCannotBeTrustedIsNotUsed) {
  const struct {
    const char* reason;
    std::function<void(const std::string& copy)> harm;
  } cases[] = {
      {"cut short", [](const auto& copy) { fs::resize_file(copy, fs::file_size(copy) - 1); }},
      {"cut short", [](const auto& copy) { fs::resize_file(copy, 10); }},
      {"cut short", [](const auto& copy) { fs::resize_file(copy, fs::file_size(copy) + 4096); }},
      {"another version", [](const auto& copy) { change_byte(copy, 0); }},
      {"another version", [](const auto& copy) { change_byte(copy, 8); }},
      {"is damaged", [](const auto& copy) { change_byte(copy, 30); }},
      {"is damaged", [](const auto& copy) { change_byte(copy, 90); }},
      {"is damaged", [](const auto& copy) { change_byte(copy, fs::file_size(copy) - 1000); }},
      {"permissions", [](const auto& copy) { fs::permissions(copy, fs::perms(0644)); }},
      {"second name", [](const auto& copy) { fs::create_hard_link(copy, copy + ".too"); }},
      {"cannot be opened",
       [](const auto& copy) {
         fs::rename(copy, copy + ".moved");
         fs::create_symlink(copy + ".moved", copy);
       }},
      {"no regular file",
       [](const auto& copy) {
         fs::remove(copy);
         ASSERT_EQ(::mkfifo(copy.c_str(), 0600), 0);
       }},
  };
  TempFolder folder;
  const std::string model = copy_of("qwen3", folder);
  const Load want = load(model, "");
  int number = 0;
  for (const auto& each : cases) {
    SCOPED_TRACE(number);
    const std::string copies = folder / ("copies" + std::to_string(number++));
    load(model, copies);
    const auto files = copies_in(copies);
    ASSERT_EQ(files.size(), 1u);
    each.harm(files[0]);
    const Load got = load(model, copies);
    expect_same(got, want);
    EXPECT_NE(got.log.find(each.reason), std::string::npos) << got.log;
    // A good one stands in its place now.
    const Load again = load(model, copies);
    expect_same(again, want);
    EXPECT_EQ(again.log, "");
  }
}

TEST(PackedCopies, AChangedModelIsReadAnew) {
  TempFolder folder;
  const std::string model = copy_of("qwen3", folder);
  const std::string copies = folder / "copies";
  const Load before = load(model, copies);
  const std::string weights = model + "/model.safetensors";
  change_byte(weights, fs::file_size(weights) / 2);
  const Load after = load(model, copies);
  EXPECT_NE(after.weights, before.weights);
  EXPECT_NE(after.log.find("changed since"), std::string::npos) << after.log;
  expect_same(load(model, ""), after);
  expect_same(load(model, copies), after);
  EXPECT_EQ(copies_in(copies).size(), 1u);
  // Same files, another reading of them.
  nlohmann::json config = test::read_json(model + "/config.json");
  config["tie_word_embeddings"] = !config["tie_word_embeddings"].get<bool>();
  fs::remove(model + "/config.json");
  std::ofstream(model + "/config.json") << config.dump();
  expect_same(load(model, copies), load(model, ""));
}

TEST(PackedCopies, AFolderOfOthersIsRefused) {
  TempFolder folder;
  const std::string copies = folder / "copies";
  fs::create_directory(copies);
  fs::permissions(copies, fs::perms(0777));
  const auto engine =
      Engine::load({.target = test::data_path("tiny/qwen3"), .packed_directory = copies});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), Code::invalid_argument);
  EXPECT_NE(engine.status().message().find("0700"), std::string::npos) << engine.status().message();
  const auto file = folder.write("file", "");
  EXPECT_FALSE(
      Engine::load({.target = test::data_path("tiny/qwen3"), .packed_directory = file}).ok());
}

TEST(PackedCopies, ALockThatCannotBeOpenedIsToldAsSuch) {
  TempFolder folder;
  const std::string model = copy_of("qwen3", folder);
  const Load want = load(model, "");
  const std::string copies = folder / "copies";
  load(model, copies);
  const std::string lock = copies + "/lock";
  if (::geteuid() != 0) {
    // Readers need not write the lock.
    fs::permissions(lock, fs::perms::owner_read);
    EXPECT_EQ(load(model, copies).log, load(model, "").log);
  }
  fs::remove(lock);
  fs::create_directory(lock);
  const Load got = load(model, copies);
  expect_same(got, want);
  EXPECT_NE(got.log.find("cannot be locked: Is a directory"), std::string::npos) << got.log;
}

// Whatever the bytes are: the weights are read anew and the load says why. Seeded.
TEST(PackedCopies, BrokenOnesAreNotUsed) {
  TempFolder folder;
  const std::string model = copy_of("qwen3", folder);
  const Load want = load(model, "");
  const std::string copies = folder / "copies";
  load(model, copies);
  const auto files = copies_in(copies);
  ASSERT_EQ(files.size(), 1u);
  const std::string whole = testing::read_text(files[0]);
  std::mt19937 random(3);
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(i);
    std::string bytes = whole;
    // Half of them in front of the weights, where sizes and sums are.
    const std::size_t at = random() % (i % 2 == 0 ? 200 : whole.size());
    switch (random() % 3) {
      case 0: bytes.resize(at); break;
      case 1: bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8); break;
      default: bytes.insert(at, 8, '\xFF');
    }
    std::ofstream(files[0], std::ios::binary) << bytes;
    const Load got = load(model, copies);
    expect_same(got, want);
    // Between the sums and the weights nothing is read.
    EXPECT_TRUE(!got.log.empty() || testing::read_text(files[0]) == bytes);
  }
}

TEST(PackedCopies, ThoseOfAnotherUserAreNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  constexpr uid_t kNobody = 65534;
  TempFolder folder;
  const std::string model = copy_of("qwen3", folder);
  const std::string copies = folder / "copies";
  const Load want = load(model, copies);
  const auto files = copies_in(copies);
  ASSERT_EQ(files.size(), 1u);
  ASSERT_EQ(::chown(files[0].c_str(), kNobody, gid_t(-1)), 0);
  const Load got = load(model, copies);
  expect_same(got, want);
  EXPECT_NE(got.log.find("belongs to another user"), std::string::npos) << got.log;
  struct stat info{};
  ASSERT_EQ(::stat(files[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 0u) << "a good one stands in its place";
  EXPECT_EQ(load(model, copies).log, "");
  ASSERT_EQ(::chown(copies.c_str(), kNobody, gid_t(-1)), 0);
  const auto engine = Engine::load({.target = model, .packed_directory = copies});
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.status().message().find("belongs to another user"), std::string::npos)
      << engine.status().message();
}

}  // namespace
}  // namespace drafthouse
