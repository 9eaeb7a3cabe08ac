//! Counts what Rust code holds, because the host reports memory by cause.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static HELD: AtomicU64 = AtomicU64::new(0);

pub struct Counting;

// Safety: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let at = System.alloc(layout);
        if !at.is_null() {
            HELD.fetch_add(layout.size() as u64, Ordering::Relaxed);
        }
        at
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        System.dealloc(at, layout);
        HELD.fetch_sub(layout.size() as u64, Ordering::Relaxed);
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let at = System.alloc_zeroed(layout);
        if !at.is_null() {
            HELD.fetch_add(layout.size() as u64, Ordering::Relaxed);
        }
        at
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
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
