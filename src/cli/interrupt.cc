#include "cli/interrupt.h"

#include <sys/time.h>
#include <unistd.h>

#include <csignal>

#include "cli/verb.h"

namespace drafthouse::cli {
namespace {

std::atomic<bool> somebody_looks{false};
std::atomic<bool> flag{false};
std::atomic<bool> signalled{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler stores into these");

// For what does not look at the flag: turning a long text into tokens, the logits of a wide
// vocabulary on slow kernels, giving back a large model's memory. What was printed stands, and
// nothing else needs saving.
constexpr itimerval kPatience = {.it_interval = {0, 0}, .it_value = {0, 700'000}};

void on_signal(int) {
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

}  // namespace drafthouse::cli
