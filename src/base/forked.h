#pragma once

#include <string_view>

namespace drafthouse {

// Makes forked() true in every child that fork() makes from now on; called by whatever starts
// threads that a child would lack. Thread-safe.
void watch_forks();

// Whether this process is a child, made by fork() and gone on without exec(), of one that had
// called watch_forks(). It has only the thread that forked, and copies of locks that others may
// have held: ask this before taking any of them.
bool forked();

// What a call in such a child answers, with Code::closed.
inline constexpr std::string_view kForked =
    "Forked: this process was made by fork() from one that had a drafthouse host, whose threads it "
    "lacks; use the library in the parent, or call exec()";

}  // namespace drafthouse
