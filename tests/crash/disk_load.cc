// A process that stores and reads chats in a cache directory until it is killed, and one that
// checks what a killed one left. Driven by crash_test.py. Pages are small and their bytes a
// function of digest, group and tokens, so that a wrong byte is seen.
//
//   disk_load load DIR [options]    writes "stored DIGEST CHAT PAGES" for each snapshot reported
//   stored disk_load check DIR [options]   reads such lines; exits 1 when one is not found, 3 on a
//   wrong byte
//
// options: --seed N  --ops N  --digests A,B  --budget BYTES  --arm POINT:N (kill -9 at the Nth)
//          --lenient (check: stored ones may have been evicted)

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>

#include "cache/disk/directory_usage.h"
#include "cache/disk/disk_section.h"
#include "cache/disk/test_disk.h"

namespace drafthouse {
namespace {

using namespace test_disk;

struct Options {
  std::string verb;
  std::string directory;
  std::uint32_t seed = 1;
  std::uint32_t operations = 1000000;
  std::vector<std::uint8_t> digests{1, 2};
  std::uint64_t budget = 0;
  std::string point;
  std::uint32_t count = 1;
  bool lenient = false;
};

constexpr int kNotFound = 1;
constexpr int kUsage = 2;
constexpr int kWrong = 3;

Options parse(int argc, char** argv) {
  Options options;
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2) std::exit(kUsage);
  options.verb = words[0];
  options.directory = words[1];
  for (std::size_t i = 2; i < words.size(); ++i) {
    const std::string& name = words[i];
    if (name == "--lenient") {
      options.lenient = true;
      continue;
    }
    if (++i >= words.size()) std::exit(kUsage);
    const std::string& value = words[i];
    if (name == "--seed")
      options.seed = static_cast<std::uint32_t>(std::stoul(value));
    else if (name == "--ops")
      options.operations = static_cast<std::uint32_t>(std::stoul(value));
    else if (name == "--budget")
      options.budget = std::stoull(value);
    else if (name == "--digests") {
      options.digests.clear();
      std::istringstream list(value);
      for (std::string number; std::getline(list, number, ',');) {
        options.digests.push_back(static_cast<std::uint8_t>(std::stoul(number)));
      }
    } else if (name == "--arm") {
      const std::size_t colon = value.rfind(':');
      options.point = value.substr(0, colon);
      options.count = static_cast<std::uint32_t>(std::stoul(value.substr(colon + 1)));
    } else {
      std::exit(kUsage);
    }
  }
  return options;
}

void say(const std::string& line) {
  const std::string text = line + "\n";
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) std::exit(kUsage);
}

// Kills the process at the Nth time that a point is reached.
void arm(FaultyFileSystem& files, const std::string& point, std::uint32_t count) {
  if (point.empty()) return;
  auto left = std::make_shared<std::atomic<std::uint32_t>>(count);
  files.set_hook([=](const FileOperation& operation) {
    if (operation.point() == point && left->fetch_sub(1) == 1) kill(getpid(), SIGKILL);
    return Fault{};
  });
}

StateLayout layout_of(std::uint8_t number) {
  return number % 2 == 0 ? layout_windowed() : layout_full();
}

class Load {
 public:
  Load(const Options& options, FileSystem& files) : options_(options), generator_(options.seed) {
    DiskOptions disk;
    disk.directory = options.directory;
    disk.budget_bytes = options.budget;
    disk.lock_retry_s = 0.05;
    disk.error_retry_s = 0.2;
    disk.run_bytes = 4000;
    directory_ = DiskDirectory::open(files, system_clock(), disk, [](std::string_view line) {
                   std::cerr << line << "\n";
                 }).value();
    for (const std::uint8_t number : options.digests) {
      sections_[number] = DiskSection::open(directory_, digest(number), layout_of(number)).value();
    }
  }

  void run() {
    for (std::uint32_t i = 0; i < options_.operations; ++i) {
      const std::uint8_t number = options_.digests[random() % options_.digests.size()];
      // Few chats, so that they grow and are met again, also by another process.
      const std::uint32_t chat = random() % 12;
      if (random() % 3 == 0)
        read(number, chat);
      else
        offer(number, chat);
      if (random() % 16 == 0) directory_->flush(10);
    }
    directory_->flush(60);
  }

  // Exit status.
  int check() {
    int status = 0;
    std::string word;
    std::uint32_t number = 0;
    std::uint32_t chat = 0;
    int pages = 0;
    while (std::cin >> word >> number >> chat >> pages) {
      DiskSection& section = *sections_.at(static_cast<std::uint8_t>(number));
      const auto text = tokens(chat, static_cast<std::size_t>(pages) * kPageTokens);
      const int right = pages_right(section, digest(static_cast<std::uint8_t>(number)), text);
      if (right < 0) return report(number, chat, "a wrong byte", kWrong);
      if (right < pages && !options_.lenient) status = report(number, chat, "not found", kNotFound);
    }
    const std::uint64_t recorded = directory_->usage().bytes;
    std::unique_ptr<DiskFolder> root;
    if (posix_file_system().open_root(options_.directory, false, root) != 0) return kUsage;
    std::uint64_t real = 0;
    if (charged_below(*root, real) != 0) return kUsage;
    if (recorded != real) {
      std::cerr << "the record says " << recorded << ", there are " << real << "\n";
      status = std::max(status, kNotFound);
    }
    if (options_.budget != 0 && real > options_.budget) {
      std::cerr << "over the budget: " << real << "\n";
      status = std::max(status, kNotFound);
    }
    if (directory_->counters().quarantined != 0) {
      std::cerr << "a kill left damage\n";
      status = std::max(status, kNotFound);
    }
    return status;
  }

 private:
  static int report(std::uint32_t number, std::uint32_t chat, const char* what, int status) {
    std::cerr << "digest " << number << " chat " << chat << ": " << what << "\n";
    return status;
  }

  void offer(std::uint8_t number, std::uint32_t chat) {
    std::uint32_t& pages = grown_[{number, chat}];
    pages = std::min(pages + 1 + static_cast<std::uint32_t>(random() % 3), 24u);
    DiskSnapshot made =
        snapshot(digest(number), layout_of(number), tokens(chat, std::size_t{pages} * kPageTokens));
    const std::string line = "stored " + std::to_string(number) + " " + std::to_string(chat) + " " +
                             std::to_string(pages);
    made.done = [line](bool stored) {
      if (stored) say(line);
    };
    if (!sections_[number]->offer(std::move(made))) directory_->flush(1);
  }

  void read(std::uint8_t number, std::uint32_t chat) {
    const auto text = tokens(chat, 24 * kPageTokens);
    if (pages_right(*sections_[number], digest(number), text) < 0) {
      std::cerr << "digest " << int{number} << " chat " << chat << ": a wrong byte\n";
      std::_Exit(kWrong);
    }
  }

  std::uint32_t random() { return static_cast<std::uint32_t>(generator_()); }

  const Options& options_;
  std::mt19937 generator_;
  std::shared_ptr<DiskDirectory> directory_;
  std::map<std::uint8_t, std::shared_ptr<DiskSection>> sections_;
  std::map<std::pair<std::uint8_t, std::uint32_t>, std::uint32_t> grown_;
};

}  // namespace
}  // namespace drafthouse

int main(int argc, char** argv) {
  using namespace drafthouse;
  const Options options = parse(argc, argv);
  FaultyFileSystem files(posix_file_system());
  arm(files, options.point, options.count);
  Load load(options, files);
  if (options.verb == "check") return load.check();
  load.run();
  return 0;
}
