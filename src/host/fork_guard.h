#pragma once

#include <memory>

#include "drafthouse/host.h"

namespace drafthouse {

// The same host, whose calls and streams answer `closed` in a child of fork() that goes on without
// exec(). There it and its streams are never destroyed: the child lacks their threads, and their
// locks may be held for ever.
std::unique_ptr<Host> guard_against_forks(std::unique_ptr<Host> host);

}  // namespace drafthouse
