//! Counts what Rust code holds, because the host reports memory by cause, and bounds what one
//! thread may hold while it works on an untrusted file.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

static HELD: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static BUDGET: Cell<*const Budget> = const { Cell::new(ptr::null()) };
}

/// What a thread may hold. An allocator can neither fail (Rust aborts) nor unwind, so a thread that
/// goes beyond its budget stops for good where it stands and keeps what it has.
pub struct Budget {
    limit: i64,
    held: AtomicI64,
    stopped: AtomicBool,
    abandoned: AtomicBool,
}

impl Budget {
    pub fn new(bytes: usize) -> Budget {
        Budget {
            limit: i64::try_from(bytes).unwrap_or(i64::MAX / 4),
            held: AtomicI64::new(0),
            stopped: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
        }
    }

    /// Applies to the calling thread while `work` runs.
    pub fn apply<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                BUDGET.set(ptr::null());
            }
        }
        BUDGET.set(self);
        let _reset = Reset;
        work()
    }

    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Nobody waits for the thread any more: it stops at its next large allocation.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    fn grow(&self, bytes: usize) {
        // Small pieces have some room more, so that a thread does not stop inside the one-time
        // initialisation of something that other threads wait for.
        const SMALL: usize = 4096;
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX / 4);
        let held = self.held.load(Ordering::Relaxed).saturating_add(bytes);
        let small = bytes < SMALL as i64;
        let limit = if small { self.limit.saturating_mul(2) } else { self.limit };
        if held > limit || (!small && self.abandoned.load(Ordering::Relaxed)) {
            self.stopped.store(true, Ordering::Relaxed);
            loop {
                // Safety: no arguments; returns when a signal was handled.
                unsafe { libc::pause() };
            }
        }
        self.held.store(held, Ordering::Relaxed);
    }

    fn shrink(&self, bytes: usize) {
        self.held.fetch_sub(bytes as i64, Ordering::Relaxed);
    }
}

fn budget() -> Option<&'static Budget> {
    // Safety: apply() clears the pointer before its Budget can go.
    unsafe { BUDGET.get().as_ref() }
}

pub struct Counting;

// Safety: every call goes to the system allocator unchanged, or does not return.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some(budget) = budget() {
            budget.grow(layout.size());
        }
        let at = System.alloc(layout);
        if !at.is_null() {
            HELD.fetch_add(layout.size() as u64, Ordering::Relaxed);
        }
        at
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if let Some(budget) = budget() {
            budget.shrink(layout.size());
        }
        System.dealloc(at, layout);
        HELD.fetch_sub(layout.size() as u64, Ordering::Relaxed);
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if let Some(budget) = budget() {
            budget.grow(layout.size());
        }
        let at = System.alloc_zeroed(layout);
        if !at.is_null() {
            HELD.fetch_add(layout.size() as u64, Ordering::Relaxed);
        }
        at
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if let Some(budget) = budget() {
            if new_size > layout.size() {
                budget.grow(new_size - layout.size());
            } else {
                budget.shrink(layout.size() - new_size);
            }
        }
        let moved = System.realloc(at, layout, new_size);
        if !moved.is_null() {
            HELD.fetch_add(new_size as u64, Ordering::Relaxed);
            HELD.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        }
        moved
    }
}

pub fn held_bytes() -> u64 {
    HELD.load(Ordering::Relaxed)
}
