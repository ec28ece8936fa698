use super::super::Rate;
use super::super::rate::Bucket;
use super::*;

fn per_second(starts: f64, burst: u64) -> Rate {
    Rate::per_second(starts).unwrap().burst(burst)
}

/// How many starts are admitted at a moment, up to a number.
fn admitted(bucket: &Bucket, now: u64, tries: usize) -> usize {
    (0..tries).filter(|_| bucket.take(now).is_ok()).count()
}

#[test]
fn a_burst_then_one_for_each_interval() {
    let bucket = Bucket::new(Some(per_second(10.0, 3)));
    for start in [0, 5_000] {
        assert_eq!(admitted(&bucket, start, 10), 3);
        assert_eq!(admitted(&bucket, start + 99, 10), 0);
        assert_eq!(admitted(&bucket, start + 100, 10), 1);
        assert_eq!(admitted(&bucket, start + 350, 10), 2);
        assert_eq!(admitted(&bucket, start + 400, 10), 1);
    }
}

#[test]
fn the_time_left_is_exact_and_a_refusal_takes_nothing() {
    for rate in [per_second(10.0, 1), per_second(7.0, 4), per_second(0.3, 2)] {
        let bucket = Bucket::new(Some(rate));
        let mut now = 12_345;
        for _ in 0..50 {
            match bucket.take(now) {
                Ok(()) => {}
                Err(left) => {
                    assert_eq!((bucket.take(now), bucket.look(now)), (Err(left), Err(left)));
                    assert_eq!(bucket.take(now + left - 1), Err(1), "{rate:?}");
                    now += left;
                    assert_eq!((bucket.look(now), bucket.take(now)), (Ok(()), Ok(())));
                }
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "a million calls")]
fn parts_of_a_millisecond_count() {
    for (rate, expected) in [(1_500.0, 15_000), (333.0, 3_330), (100_000.0, 1_000_000)] {
        let bucket = Bucket::new(Some(per_second(rate, rate as u64 / 100 + 1)));
        let burst = rate as usize / 100 + 1;
        let started: usize = (0..10_000).map(|now| admitted(&bucket, now, burst)).sum();
        assert!((expected..=expected + burst).contains(&started), "{started} at {rate}");
    }
}

#[test]
fn no_more_than_the_burst_starts_at_one_moment() {
    for _ in 0..ROUNDS {
        let bucket = Bucket::new(Some(per_second(1.0, 3)));
        let started: usize = together(4, |_| admitted(&bucket, 0, 3)).into_iter().sum();
        assert_eq!(started, 3);
    }
}

#[test]
fn a_change_takes_effect_at_once() {
    let bucket = Bucket::new(None);
    assert_eq!((bucket.rate(), admitted(&bucket, 0, 1_000)), (None, 1_000));
    let hourly = Rate::new(10, Duration::from_secs(36_000)).unwrap();
    bucket.set_rate(Some(hourly));
    assert_eq!(bucket.rate(), Some(hourly));
    assert_eq!(admitted(&bucket, 0, 1_000), 10);
    // A debt of hours counts for no more than the new bucket holds.
    bucket.set_rate(Some(per_second(100.0, 5)));
    assert_eq!((bucket.look(1_000), bucket.take(1_000)), (Ok(()), Err(10)));
    assert_eq!((admitted(&bucket, 1_010, 10), admitted(&bucket, 1_050, 10)), (1, 4));
    // The same rate again gives nothing away.
    for now in 1_050..1_059 {
        bucket.set_rate(Some(per_second(100.0, 5)));
        assert_eq!(admitted(&bucket, now, 10), 0);
    }
    bucket.set_rate(None);
    assert_eq!(admitted(&bucket, 1_050, 1_000), 1_000);
    // A bucket that nobody took from is full, also when it is changed.
    let bucket = Bucket::new(Some(hourly));
    bucket.set_rate(Some(per_second(100.0, 5)));
    assert_eq!(admitted(&bucket, 0, 10), 5);
}

#[test]
fn a_clock_that_steps_back_gives_no_tokens() {
    let bucket = Bucket::new(Some(per_second(10.0, 2)));
    assert_eq!(admitted(&bucket, 1_000, 10), 2);
    assert_eq!(bucket.take(990), Err(110));
    assert_eq!(admitted(&bucket, 1_100, 10), 1);
}

#[test]
fn ovr_01_any_rate_at_any_time() {
    let years = Duration::from_secs(1_000 * 31_556_952);
    for now in [0, 1, 1 << 43, 1 << 44, u64::MAX - 10, u64::MAX] {
        for per in [Duration::MAX, years, millis(u64::MAX), Duration::from_nanos(1)] {
            let bucket = Bucket::new(Some(Rate::new(1, per).unwrap()));
            assert_eq!(bucket.take(now), Ok(()), "1 in {per:?} at {now}");
            let again = bucket.take(now);
            assert!(again.is_err_and(|left| left > 0), "1 in {per:?} at {now}: {again:?}");
        }
        let bucket = Bucket::new(Some(per_second(1e300, u64::MAX)));
        assert_eq!(admitted(&bucket, now, 100), 100);
        let bucket = Bucket::new(Some(per_second(1e-300, 2)));
        assert_eq!(admitted(&bucket, now, 10), 1, "two of the longest intervals are cut to one");
    }
}

#[test]
fn nonsense_is_refused() {
    use crate::ConfigError::{Number, TooShort};
    for starts in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(Rate::per_second(starts), Err(Number("rate", _))));
    }
    assert_eq!(Rate::new(0, millis(1)), Err(Number("rate", 0.0)));
    assert_eq!(Rate::new(1, Duration::ZERO), Err(TooShort("rate")));
    assert_eq!(per_second(10.0, 0).burst_size(), 1);
    assert_eq!(Rate::per_second(10.0).unwrap().burst_size(), 10);
}
