#pragma once

namespace drafthouse {

// Descriptors that hold file locks. A child made by fork() closes its copies at once, so that a
// lock never outlives the process that took it because of a child that runs on. Thread-safe.
void remember_lock_descriptor(int descriptor);
void forget_lock_descriptor(int descriptor);

}  // namespace drafthouse
