#include "cli/interrupt.h"

#include <sys/eventfd.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

#include "cli/verb.h"

namespace drafthouse::cli {
namespace {

std::atomic<bool> somebody_looks{false};
std::atomic<bool> flag{false};
std::atomic<bool> signalled{false};
// What a SignalWatch has of the last signal, and the descriptor that it waits on.
std::atomic<bool> watched{false};
std::atomic<int> noted{0};
std::atomic<int> wake{-1};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "a signal handler stores into these");

// For what does not look at the flag: turning a long text into tokens, the logits of a wide
// vocabulary on slow kernels, giving back a large model's memory. What was printed stands, and
// nothing else needs saving.
constexpr itimerval kPatience = {.it_interval = {0, 0}, .it_value = {0, 700'000}};

void note(int signal) {
  if (noted.exchange(signal) != 0) ::_exit(kInterrupted);
  const int error = errno;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake.load(), &one, sizeof one));
  errno = error;
}

void on_signal(int signal) {
  if (watched.load()) return note(signal);
  if (!somebody_looks.load() || signalled.exchange(true)) ::_exit(kInterrupted);
  flag.store(true);
  ::setitimer(ITIMER_REAL, &kPatience, nullptr);
}

void on_alarm(int) { ::_exit(kInterrupted); }

}  // namespace

void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

std::atomic<bool>& interrupt_flag() {
  somebody_looks.store(true);
  return flag;
}

bool interrupted() { return signalled.load(); }

SignalWatch::SignalWatch() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  noted.store(0);
  wake.store(descriptor_);
  watched.store(true);
}

SignalWatch::~SignalWatch() {
  watched.store(false);
  wake.store(-1);
  if (descriptor_ >= 0) ::close(descriptor_);
}

int SignalWatch::take() {
  std::uint64_t count = 0;
  static_cast<void>(!::read(descriptor_, &count, sizeof count));
  return noted.exchange(0);
}

}  // namespace drafthouse::cli
