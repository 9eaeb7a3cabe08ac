//! Work on untrusted files: on a thread of its own, with a deep stack, a memory budget and a time
//! limit.

use std::os::unix::thread::JoinHandleExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

use crate::failure::{Failure, Kind};
use crate::memory::Budget;

const TICK: Duration = Duration::from_millis(20);
/// For a thread that sleeps instead of working.
const MAX_WAIT: Duration = Duration::from_secs(300);

pub struct Limits {
    pub bytes: usize,
    /// Only address space: the pages of a stack come when they are used.
    pub stack_bytes: usize,
    /// Processor time, so that a busy machine is not taken for a hostile file.
    pub time: Duration,
}

pub enum Outcome<T> {
    Done(T),
    /// The thread could not be ended: it has stopped where it went beyond its budget, or goes on at
    /// the lowest priority. Whoever sees this must not start the same work again.
    RanAway(&'static str),
}

pub fn run<T: Send + 'static>(
    limits: &Limits,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<Outcome<T>, Failure> {
    let budget = Arc::new(Budget::new(limits.bytes));
    let thread_id = Arc::new(AtomicI32::new(0));
    let (send, receive) = mpsc::sync_channel(1);
    let (its_budget, its_id) = (Arc::clone(&budget), Arc::clone(&thread_id));
    let thread = std::thread::Builder::new()
        .name("dh-text".into())
        .stack_size(limits.stack_bytes)
        .spawn(move || {
            // Safety: no arguments.
            its_id.store(unsafe { libc::gettid() }, Ordering::Relaxed);
            let result = its_budget.apply(|| catch_unwind(AssertUnwindSafe(work)));
            let _ = send.send(result.unwrap_or_else(|panic| Err(Failure::panic(&*panic))));
        })
        .map_err(|e| Failure::new(Kind::Internal, format!("cannot start a thread: {e}")))?;

    let begin = Instant::now();
    loop {
        match receive.recv_timeout(TICK) {
            Ok(result) => {
                let _ = thread.join();
                return result.map(Outcome::Done);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(Failure::new(Kind::Internal, "a thread ended without a result"));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if budget.stopped() {
            return Ok(Outcome::RanAway("it needs too much memory"));
        }
        if time_of(&thread) > limits.time || begin.elapsed() > MAX_WAIT {
            budget.abandon();
            let id = thread_id.load(Ordering::Relaxed) as libc::id_t;
            // Safety: plain numbers; Linux lowers the one thread that has this id.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, id, 19) };
            return Ok(Outcome::RanAway("it takes too long"));
        }
    }
}

/// Zero when the thread has just ended.
fn time_of<T>(thread: &std::thread::JoinHandle<T>) -> Duration {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Safety: the handle has not been joined, so its pthread_t is valid.
    let read = unsafe {
        libc::pthread_getcpuclockid(thread.as_pthread_t(), &mut clock) == 0
            && libc::clock_gettime(clock, &mut time) == 0
    };
    if !read {
        return Duration::ZERO;
    }
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
