// The C interface over the real host, and what becomes of it in a forked child.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "drafthouse/drafthouse.h"
#include "drafthouse/host.h"
#include "tests/test_data.h"

namespace drafthouse {
namespace {

std::string text_of(dh_string string) { return std::string(string.data, string.length); }

std::string nano(const char* part) { return test::data_path("models/nano-qwen3") + "/" + part; }

class Embedding : public testing::Test {
 protected:
  void SetUp() override {
    if (test::data_path("models/nano-qwen3").empty()) GTEST_SKIP() << "no models/nano-qwen3";
    dh_host_options options;
    dh_host_options_init(&options, sizeof options);
    options.threads = 1;
    ASSERT_EQ(dh_host_create(&options, &host, &why), DH_OK) << text_of(why.message);
  }
  void TearDown() override {
    dh_host_destroy(host);
    dh_status_clear(&why);
  }

  void load(const char* name, const dh_cache_config* cache = nullptr) {
    dh_model_spec spec;
    dh_model_spec_init(&spec, sizeof spec);
    const std::string target = nano("target"), draft = nano("draft");
    spec.name = dh_str(name);
    spec.target = dh_str(target.c_str());
    spec.draft = dh_str(draft.c_str());
    spec.cache = cache;
    ASSERT_EQ(dh_model_load_new(host, &spec, &why), DH_OK) << text_of(why.message);
  }
  // Of a golden case.
  dh_stream* submit(const char* model, const nlohmann::json& golden) {
    const auto prompt = golden["prompt_ids"].get<std::vector<std::uint32_t>>();
    dh_submit_request request;
    dh_submit_request_init(&request, sizeof request);
    request.model = dh_str(model);
    request.prompt_ids = prompt.data();
    request.prompt_id_count = prompt.size();
    request.max_tokens = static_cast<std::uint32_t>(golden["greedy_ids"].size());
    dh_stream* stream = nullptr;
    EXPECT_EQ(dh_submit(host, &request, &stream, &why), DH_OK) << text_of(why.message);
    return stream;
  }
  // All events up to the terminal one, whose kind and code are given back.
  std::pair<int, dh_code> take_all(dh_stream* stream, std::vector<std::uint32_t>* ids = nullptr) {
    dh_event event = {};
    event.size = sizeof event;
    std::pair<int, dh_code> last = {-1, DH_OK};
    while (dh_stream_next(stream, -1, &event, &why) == DH_OK) {
      last = {event.kind, event.code};
      if (event.kind == DH_EVENT_TOKENS && ids != nullptr) {
        ids->insert(ids->end(), event.ids, event.ids + event.id_count);
      }
    }
    EXPECT_EQ(why.code, DH_OVER);
    return last;
  }

  dh_host* host = nullptr;
  dh_status why = DH_STATUS_INIT;
};

TEST_F(Embedding, AnswersAreTheTargetsOwn) {
  load("chat");
  const auto cases = test::read_json(nano("golden.json"))["cases"];
  std::vector<dh_stream*> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(submit("chat", cases[i]));
  for (int i = 0; i < 4; ++i) {
    std::vector<std::uint32_t> ids;
    EXPECT_EQ(take_all(streams[i], &ids), std::make_pair(int{DH_EVENT_FINISHED}, dh_code{DH_OK}));
    EXPECT_EQ(ids, cases[i]["greedy_ids"].get<std::vector<std::uint32_t>>()) << i;
    dh_stream_destroy(streams[i]);
  }
  dh_model_stats stats = {};
  stats.size = sizeof stats;
  ASSERT_EQ(dh_model_stats_get(host, dh_str("chat"), &stats, &why), DH_OK);
  EXPECT_EQ(stats.state, DH_MODEL_READY);
  EXPECT_EQ(stats.finished, 4u);
  dh_string json = {};
  ASSERT_EQ(dh_stats(host, &json, &why), DH_OK);
  EXPECT_EQ(nlohmann::json::parse(text_of(json))["models"]["chat"]["info"]["family"], "qwen3");
  dh_string_free(json);
}

TEST_F(Embedding, StreamsOutliveTheHost) {
  load("chat");
  const auto golden = test::read_json(nano("golden.json"))["cases"][0];
  dh_stream* stream = submit("chat", golden);
  dh_host_destroy(host);
  const auto [kind, code] = take_all(stream);
  // It may have been quicker than the end of the host.
  EXPECT_TRUE(kind == DH_EVENT_FINISHED || code == DH_CLOSED) << kind << " " << code;
  EXPECT_EQ(dh_stream_cancel(stream, &why), DH_OK);
  EXPECT_EQ(dh_model_load(host, dh_str("chat"), &why), DH_CLOSED);
  dh_stream_destroy(stream);
}

// Descriptors of this process that are lock files below a folder.
int lock_descriptors(const std::string& folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto file = std::filesystem::read_symlink(entry.path(), error);
    count += !error && file.filename() == "lock" && file.string().starts_with(folder);
  }
  return count;
}

TEST_F(Embedding, AForkedChildGetsClosedAndHoldsNoLock) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("drafthouse-fork-" + std::to_string(getpid()));
  dh_cache_config cache;
  dh_cache_config_init(&cache, sizeof cache);
  const std::string directory = folder.string();
  cache.disk_directory = dh_str(directory.c_str());
  load("chat", &cache);
  const auto golden = test::read_json(nano("golden.json"))["cases"][11];
  dh_stream* stream = submit("chat", golden);
  auto other = Host::create({.threads = 1});
  ASSERT_TRUE(other.ok());

  ASSERT_GT(lock_descriptors(directory), 0);
  const pid_t child = fork();
  if (child == 0) {
    int wrong = 0;
    dh_event event = {};
    event.size = sizeof event;
    wrong += dh_stream_next(stream, -1, &event, &why) != DH_CLOSED;
    wrong += dh_stream_cancel(stream, &why) != DH_CLOSED;
    dh_stream_destroy(stream);
    wrong += dh_model_load(host, dh_str("chat"), &why) != DH_CLOSED;
    wrong += dh_drain(host, 0, &why) != DH_CLOSED;
    dh_host_destroy(host);
    wrong += dh_host_create(nullptr, &host, &why) != DH_CLOSED;
    wrong += text_of(why.message).rfind("Forked", 0) != 0;
    wrong += other.value()->drain(0).code() != Code::closed;
    wrong += !other.value()->stats().models.empty();
    other.value().reset();
    wrong += lock_descriptors(directory);
    _exit(wrong);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;

  // The parent notices nothing.
  std::vector<std::uint32_t> ids;
  EXPECT_EQ(take_all(stream, &ids).first, DH_EVENT_FINISHED);
  EXPECT_EQ(ids, golden["greedy_ids"].get<std::vector<std::uint32_t>>());
  dh_stream_destroy(stream);
  dh_host_destroy(host);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace drafthouse
