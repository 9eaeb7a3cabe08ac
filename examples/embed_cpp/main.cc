// Several models in one process through the C++ interface: interleaved requests, one model
// reconfigured and one unloaded while others answer.
//
//   c++ -std=c++20 main.cc $(pkg-config --cflags --libs drafthouse) -o embed_cpp
//   ./embed_cpp NAME TARGET DRAFT [NAME TARGET DRAFT …]      two models or more; DRAFT may be ""

#include <drafthouse/host.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace {

constexpr std::uint32_t kAnswerTokens = 48;
constexpr double kWait_s = 600;
// What all requests share comes from the prefix cache, in pages of 64 tokens.
constexpr char kSystem[] =
    "You are a patient assistant for people who learn to program. Answer in a few plain sentences, "
    "say "
    "what a word means when you use it for the first time, and show a short piece of code when it "
    "helps. "
    "When you do not know something, say so, and say where one could look it up.";
const char* const kPrompts[] = {"Write a Python function that adds two numbers.",
                                "What is the capital of France?"};

void require(const drafthouse::Status& status, const std::string& what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what.c_str(), status.message().c_str());
  std::exit(1);
}

struct Request {
  std::string model;
  std::unique_ptr<drafthouse::Stream> stream;
  std::vector<std::uint32_t> ids = {};
};

Request start(drafthouse::Host& host, const std::string& model, const std::string& prompt) {
  drafthouse::SubmitRequest wanted;
  wanted.model = model;
  wanted.messages = {{"system", kSystem}, {"user", prompt}};
  wanted.max_tokens = kAnswerTokens;
  wanted.width = 4;  // the same figures every time; without it the width follows what is fastest
  auto stream = host.submit(wanted);
  if (!stream.ok()) require(stream.status(), model);
  return {model, std::move(stream).value()};
}

std::vector<Request> start_all(drafthouse::Host& host,
                               const std::vector<drafthouse::ModelSpec>& models) {
  std::vector<Request> requests;
  for (const char* prompt : kPrompts) {
    for (const drafthouse::ModelSpec& model : models) {
      requests.push_back(start(host, model.name, prompt));
    }
  }
  return requests;
}

void print(const Request& request, const drafthouse::GenerateResult& result) {
  std::string line = result.text.substr(0, 36);
  for (char& c : line) c = c == '\n' ? ' ' : c;
  const std::vector<std::uint32_t>& turns = result.accepted_per_turn;
  const double gained = std::accumulate(turns.begin(), turns.end(), 0.0);
  const drafthouse::CacheReport& cache = result.cache;
  std::printf("  %-8s %2zu ids, %.2f per turn, %3u prompt tokens from %s%s%s: %s\n",
              request.model.c_str(), result.ids.size(),
              turns.empty() ? 0.0 : gained / static_cast<double>(turns.size()),
              cache.matched_tokens, cache.tier.c_str(), cache.reason.empty() ? "" : ", ",
              cache.reason.c_str(), line.c_str());
}

// All requests run at once, in whatever order their events are taken.
void finish(std::vector<Request>& requests) {
  for (Request& request : requests) {
    while (auto event = request.stream->next(kWait_s)) {
      if (event->kind != drafthouse::Event::Kind::finished) {
        require(event->status, request.model);
        continue;
      }
      request.ids = event->result.ids;
      print(request, event->result);
    }
    if (!request.stream->over()) {
      std::fprintf(stderr, "%s: no event for %g s\n", request.model.c_str(), kWait_s);
      std::exit(1);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<drafthouse::ModelSpec> models;
  for (int i = 1; i + 2 < argc; i += 3) {
    drafthouse::ModelSpec spec;
    spec.name = argv[i];
    spec.target = argv[i + 1];
    spec.draft = argv[i + 2];
    spec.label = argv[i];
    models.push_back(spec);
  }
  if (models.size() < 2 || argc != static_cast<int>(3 * models.size()) + 1) {
    std::fprintf(stderr, "usage: %s NAME TARGET DRAFT NAME TARGET DRAFT [NAME TARGET DRAFT …]\n",
                 argv[0]);
    return 2;
  }
  drafthouse::HostOptions options;
  options.log = [](drafthouse::LogLevel level, std::string_view line) {
    if (level < drafthouse::LogLevel::warning) return;
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  };
  auto made = drafthouse::Host::create(options);
  if (!made.ok()) require(made.status(), "host");
  const std::unique_ptr<drafthouse::Host> host = std::move(made).value();
  for (const drafthouse::ModelSpec& model : models) require(host->load(model), model.name);

  std::printf("every model, every prompt, at once:\n");
  std::vector<Request> first = start_all(*host, models);
  finish(first);

  const std::string &smaller = models[0].name, &unloaded = models[1].name;
  std::printf("again; %s gets a smaller cache and %s is unloaded meanwhile:\n", smaller.c_str(),
              unloaded.c_str());
  std::vector<Request> again = start_all(*host, models);
  drafthouse::CacheConfig cache;
  cache.ram_bytes = std::size_t{64} << 20;
  require(host->reconfigure(smaller, cache), smaller);
  // What still runs at the deadline fails.
  require(host->unload(unloaded, {.deadline_s = kWait_s}), unloaded);
  finish(again);

  std::printf("later; the request loads %s again:\n", unloaded.c_str());
  std::vector<Request> later;
  later.push_back(start(*host, smaller, kPrompts[0]));
  later.push_back(start(*host, unloaded, kPrompts[0]));
  finish(later);

  std::size_t differing = 0;
  for (std::size_t i = 0; i < again.size(); ++i) differing += again[i].ids != first[i].ids;
  for (std::size_t i = 0; i < later.size(); ++i) differing += later[i].ids != first[i].ids;
  std::printf("answers that differ: %zu\n", differing);
  for (const drafthouse::ModelStats& model : host->stats().models) {
    std::printf(
        "%-8s %s, %llu of %llu requests finished, %llu tokens, %llu from the cache, %.1f MB\n",
        model.name.c_str(), std::string(drafthouse::name_of(model.state)).c_str(),
        static_cast<unsigned long long>(model.finished),
        static_cast<unsigned long long>(model.requests),
        static_cast<unsigned long long>(model.generated_tokens),
        static_cast<unsigned long long>(model.ram_hit_tokens),
        static_cast<double>(model.memory_bytes) / 1e6);
  }
  std::size_t bytes = 0;
  for (const drafthouse::LedgerRow& row : host->ledger()) bytes += row.bytes;
  std::printf("accounted for: %.1f MB\n", static_cast<double>(bytes) / 1e6);
  return differing == 0 ? 0 : 1;
}
