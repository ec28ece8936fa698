//! Loom models of flights; the real code throughout. What loom does not see: the answer, and the notes of
//! loads inside loads.
//!
//! Run with `RUSTFLAGS="--cfg seawall_loom" cargo test --release --lib loom_flight`.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::future::block_on;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use loom::sync::atomic::{AtomicBool, AtomicUsize};
use loom::thread;

use super::waiters::Waiters;
use super::word::{Phase, Word};
use super::{Flight, Join, LoadFuture, Participant, Said, Unanswered};
use crate::clock::Alarm;
use crate::sync::AtomicWaker;

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(2);
    builder.max_branches = 10_000;
    builder.check(body);
}

fn spawn<A: Send + Sync + 'static, T: 'static>(
    shared: &Arc<A>,
    body: impl FnOnce(&Arc<A>) -> T + 'static,
) -> thread::JoinHandle<T> {
    let shared = Arc::clone(shared);
    thread::spawn(move || body(&shared))
}

/// Counts how often it wakes.
struct Woken(AtomicUsize);

impl Woken {
    fn new() -> Arc<Woken> {
        Arc::new(Woken(AtomicUsize::new(0)))
    }

    fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    fn count(&self) -> usize {
        self.0.load(Acquire)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, AcqRel);
    }
}

/// Waits as a task does: a wake-up that is lost is a deadlock, which fails the model.
fn wait(mut participant: Participant<u32>) -> Result<u32, Unanswered> {
    let mut never = Alarm::never();
    block_on(poll_fn(|cx| participant.poll(cx, &mut never)))
}

fn join(flight: &Arc<Flight<u32>>) -> Result<u32, Unanswered> {
    match Arc::clone(flight).join() {
        Join::Running(participant) => wait(participant),
        Join::Done(answer) => Ok(answer),
        Join::Closed => Err(Unanswered::Closed),
    }
}

/// What is done before the answer is seen by those who get it, and who joins gets it.
#[test]
fn loom_flight_who_joins_gets_the_answer() {
    model(|| {
        let flight = Flight::new(0);
        let done = Arc::new(AtomicBool::new(false));
        let follower = spawn(&flight, {
            let done = Arc::clone(&done);
            move |flight| {
                assert_eq!(join(flight), Ok(7));
                assert!(done.load(Relaxed), "the answer came before what led to it");
            }
        });
        done.store(true, Relaxed);
        flight.complete(7);
        assert_eq!(flight.answer(), Some(&7));
        follower.join().unwrap();
        assert!(matches!(flight.join(), Join::Done(7)));
    });
}

#[test]
fn loom_flight_two_who_join_get_the_answer() {
    model(|| {
        let flight = Flight::new(0);
        let followers = [(); 2].map(|()| spawn(&flight, |flight| assert_eq!(join(flight), Ok(7))));
        flight.complete(7);
        for follower in followers {
            follower.join().unwrap();
        }
    });
}

/// Whether it was answered or has left, a task is not kept by a flight that it has done with.
#[test]
fn loom_flight_no_waker_is_left_behind() {
    model(|| {
        let flight = Flight::new(0);
        let task = Woken::new();
        let follower = spawn(&flight, {
            let waker = task.waker();
            move |flight| {
                let Join::Running(mut participant) = Arc::clone(flight).join() else { return };
                let (mut cx, mut never) = (Context::from_waker(&waker), Alarm::never());
                if participant.poll(&mut cx, &mut never).is_pending() {
                    // Without having been woken: so does one who waits for several things.
                    let _ = participant.poll(&mut cx, &mut never);
                }
            }
        });
        flight.complete(7);
        follower.join().unwrap();
        assert_eq!(Arc::strong_count(&task), 1);
    });
}

/// Of what is said of a load, and what the load has published before it looks whether anything was said,
/// one is seen.
fn one_is_seen(say: fn(&Flight<u32>)) {
    let flight = Flight::new(0);
    let published = Arc::new(AtomicBool::new(false));
    let found = spawn(&flight, {
        let published = Arc::clone(&published);
        move |flight| {
            say(flight);
            published.load(Relaxed)
        }
    });
    published.store(true, Relaxed);
    let heeded = flight.heed() != Said::Nothing;
    assert!(found.join().unwrap() || heeded, "neither saw the other");
}

#[test]
fn loom_flight_a_mark_meets_what_is_published() {
    model(|| one_is_seen(|flight| flight.mark(1)));
}

#[test]
fn loom_flight_a_void_meets_what_is_published() {
    model(|| one_is_seen(Flight::make_void));
}

/// Nobody joins a flight that was closed by the last one out.
#[test]
fn loom_flight_nobody_joins_after_the_last_left() {
    model(|| {
        let word = Arc::new(Word::new());
        let joiner = spawn(&word, |word| match word.join() {
            // With the first one gone, this is the last.
            Phase::Running => Some(word.leave()),
            Phase::Closed => None,
            Phase::Done => unreachable!(),
        });
        let closed = word.leave();
        match joiner.join().unwrap() {
            Some(closes) => assert!(closes != closed, "one of them closes it"),
            None => assert!(closed),
        }
        assert_eq!((word.phase(), word.participants()), (Phase::Closed, 0));
        assert_eq!(word.join(), Phase::Closed);
    });
}

#[test]
fn loom_flight_one_of_two_leavers_closes() {
    model(|| {
        let word = Arc::new(Word::new());
        assert_eq!(word.join(), Phase::Running);
        let other = spawn(&word, |word| word.leave());
        let mine = word.leave();
        assert!(mine != other.join().unwrap());
        assert_eq!(word.phase(), Phase::Closed);
    });
}

/// An answer and the last one's leave: either it is closed, or the answer stands.
#[test]
fn loom_flight_an_answer_and_the_last_leave() {
    model(|| {
        let word = Arc::new(Word::new());
        let leaver = spawn(&word, |word| word.leave());
        let finished = word.finish();
        assert!(leaver.join().unwrap() != finished);
        let phase = if finished { Phase::Done } else { Phase::Closed };
        assert_eq!((word.phase(), word.participants()), (phase, 0));
        assert!(!word.is_shared());
    });
}

/// A leader that ends its flight alone leaves nobody in it.
#[test]
fn loom_flight_who_joined_in_time_is_not_left() {
    model(|| {
        let flight = Flight::new(0);
        let follower = spawn(&flight, join);
        let alone = flight.complete_alone();
        if !alone {
            flight.complete(7);
        }
        let told = follower.join().unwrap();
        assert_eq!(told, if alone { Err(Unanswered::Closed) } else { Ok(7) });
    });
}

/// Whether the answer was for several is settled with it.
#[test]
fn loom_flight_who_joined_in_time_shares() {
    model(|| {
        let word = Arc::new(Word::new());
        let joiner = spawn(&word, |word| word.join());
        assert!(word.finish());
        let shared = joiner.join().unwrap() == Phase::Running;
        assert_eq!(word.is_shared(), shared);
    });
}

struct List {
    waiters: Waiters,
    told: AtomicBool,
}

impl List {
    fn new() -> Arc<List> {
        Arc::new(List { waiters: Waiters::default(), told: AtomicBool::new(false) })
    }

    fn tell(&self) {
        self.told.store(true, Relaxed);
        self.waiters.wake_all();
    }
}

/// Waits for a waker's call, or for what it is to tell of.
fn sit_out(list: &Arc<List>) {
    let mut seat = None;
    block_on(poll_fn(|cx| {
        match &seat {
            Some(seat) => list.waiters.update(seat, cx.waker()),
            None => seat = Some(list.waiters.add(cx.waker())),
        }
        if list.told.load(Relaxed) { Poll::Ready(()) } else { Poll::Pending }
    }));
    list.waiters.remove(seat.expect("it was polled"));
}

#[test]
fn loom_flight_no_wake_is_lost_in_a_new_seat() {
    model(|| {
        let list = List::new();
        let sitter = spawn(&list, sit_out);
        list.tell();
        sitter.join().unwrap();
    });
}

#[test]
fn loom_flight_no_wake_is_lost_in_two_new_seats() {
    model(|| {
        let list = List::new();
        let sitters = [(); 2].map(|()| spawn(&list, sit_out));
        list.tell();
        for sitter in sitters {
            sitter.join().unwrap();
        }
    });
}

/// As [`sit_out`], for a thread.
fn sleep_out(list: &Arc<List>) {
    loop {
        let heard = list.waiters.listen();
        if list.told.load(Relaxed) {
            return;
        }
        list.waiters.sleep(heard, Duration::MAX);
    }
}

#[test]
fn loom_flight_no_thread_sleeps_on() {
    model(|| {
        let list = List::new();
        let sleepers = [(); 2].map(|()| spawn(&list, sleep_out));
        list.tell();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    });
}

/// Also what only rings says what it rings for.
#[test]
fn loom_flight_no_thread_sleeps_through_the_bell() {
    model(|| {
        let list = List::new();
        let sleeper = spawn(&list, sleep_out);
        list.told.store(true, Relaxed);
        list.waiters.ring();
        sleeper.join().unwrap();
    });
}

/// Neither keeps the other from being seen.
#[test]
fn loom_flight_a_thread_and_a_task_are_woken() {
    model(|| {
        let list = List::new();
        let sleeper = spawn(&list, sleep_out);
        let sitter = spawn(&list, sit_out);
        list.tell();
        sleeper.join().unwrap();
        sitter.join().unwrap();
    });
}

/// A seat that is used again is as good as a new one.
#[test]
fn loom_flight_no_wake_is_lost_in_a_seat_used_again() {
    model(|| {
        let list = List::new();
        let former = list.waiters.add(&Woken::new().waker());
        list.waiters.remove(former);
        let sitter = spawn(&list, sit_out);
        list.tell();
        sitter.join().unwrap();
    });
}

/// A free seat is given to one of two, and nobody is woken by what its former user left.
#[test]
fn loom_flight_a_free_seat_is_taken_once() {
    model(|| {
        let list = List::new();
        let former = Woken::new();
        let seat = list.waiters.add(&former.waker());
        list.waiters.remove(seat);
        let sitters = [(); 2].map(|()| {
            spawn(&list, |list| {
                let woken = Woken::new();
                let seat = list.waiters.add(&woken.waker());
                (seat, woken)
            })
        });
        let seats = sitters.map(|sitter| sitter.join().unwrap());
        list.waiters.wake_all();
        for (seat, woken) in seats {
            assert_eq!(woken.count(), 1, "two sit on one seat");
            list.waiters.remove(seat);
        }
        assert_eq!(former.count(), 0);
    });
}

/// A seat is left and another one taken while all are woken.
#[test]
fn loom_flight_a_seat_changes_hands_while_all_are_woken() {
    model(|| {
        let list = List::new();
        let seat = list.waiters.add(&Woken::new().waker());
        let teller = spawn(&list, |list| list.tell());
        list.waiters.remove(seat);
        sit_out(&list);
        teller.join().unwrap();
    });
}

/// A loader that yields once, if it is told to, and waits for a flag.
struct Origin {
    up: AtomicBool,
    yields: AtomicBool,
    waker: AtomicWaker,
}

impl Origin {
    fn new(yields: bool) -> Arc<Origin> {
        let (up, yields) = (AtomicBool::new(false), AtomicBool::new(yields));
        Arc::new(Origin { up, yields, waker: AtomicWaker::new() })
    }

    fn come_up(&self) {
        self.up.store(true, Relaxed);
        self.waker.wake();
    }

    fn load(self: &Arc<Self>, flight: &Arc<Flight<u32>>) -> LoadFuture {
        let (origin, flight) = (Arc::clone(self), Arc::downgrade(flight));
        Box::pin(poll_fn(move |cx| {
            if origin.yields.swap(false, Relaxed) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            origin.waker.register(cx.waker());
            if !origin.up.load(Relaxed) {
                return Poll::Pending;
            }
            flight.upgrade().expect("somebody polls").complete(7);
            Poll::Ready(())
        }))
    }
}

/// A load that any participant drives, woken from outside.
#[test]
fn loom_flight_two_drive_one_load() {
    model(|| {
        let (flight, origin) = (Flight::new(0), Origin::new(false));
        flight.install(origin.load(&flight));
        let follower = spawn(&flight, |flight| assert_eq!(join(flight), Ok(7)));
        let waker = spawn(&origin, |origin| origin.come_up());
        assert_eq!(wait(Arc::clone(&flight).first()), Ok(7));
        follower.join().unwrap();
        waker.join().unwrap();
    });
}

/// The first caller polls once and goes; whoever stays drives the load on.
fn hand_over(origin: &Arc<Origin>) {
    let flight = Flight::new(0);
    flight.install(origin.load(&flight));
    let Join::Running(second) = Arc::clone(&flight).join() else { unreachable!() };
    let follower = thread::spawn(move || assert_eq!(wait(second), Ok(7)));
    let waker = spawn(origin, |origin| origin.come_up());
    let mut first = Arc::clone(&flight).first();
    let woken = Woken::new();
    let mut never = Alarm::never();
    let _ = first.poll(&mut Context::from_waker(&woken.waker()), &mut never);
    drop(first);
    follower.join().unwrap();
    waker.join().unwrap();
}

#[test]
fn loom_flight_a_load_is_handed_over() {
    model(|| hand_over(&Origin::new(false)));
}

/// It is due again at once: the first caller holds it a second time when it is woken from outside.
#[test]
fn loom_flight_a_load_that_yields_is_handed_over() {
    model(|| hand_over(&Origin::new(true)));
}

/// Who joins before there is a future is woken when there is one, and drives it.
#[test]
fn loom_flight_who_came_before_the_future_drives_it() {
    model(|| {
        let (flight, origin) = (Flight::new(0), Origin::new(false));
        origin.come_up();
        let Join::Running(second) = Arc::clone(&flight).join() else { unreachable!() };
        let follower = thread::spawn(move || assert_eq!(wait(second), Ok(7)));
        flight.install(origin.load(&flight));
        drop(Arc::clone(&flight).first());
        follower.join().unwrap();
    });
}

/// The last one out takes the load along; who comes then begins a new one.
#[test]
fn loom_flight_the_last_one_out_drops_the_load() {
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, AcqRel);
        }
    }
    model(|| {
        let flight: Arc<Flight<u32>> = Flight::new(0);
        let drops = Arc::new(AtomicUsize::new(0));
        let held = Dropped(Arc::clone(&drops));
        flight.install(Box::pin(async move {
            let _held = held;
            std::future::pending::<()>().await;
        }));
        let other = spawn(&flight, |flight| match Arc::clone(flight).join() {
            Join::Running(participant) => drop(participant),
            Join::Done(_) => unreachable!(),
            Join::Closed => {}
        });
        drop(Arc::clone(&flight).first());
        other.join().unwrap();
        assert_eq!((flight.phase(), drops.load(Acquire)), (Phase::Closed, 1));
    });
}
