//! What cannot be done is said in one line, and nothing else is.

use crate::{compressed, file, run};

/// One line on standard error that says all of `parts`, nothing on standard output.
fn assert_fails(code: u8, args: &[&str], stdin: &[u8], parts: &[&str]) {
    let ran = run(args, stdin);
    assert_eq!((ran.code, &*ran.out), (code, ""), "{args:?}: {}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{args:?}: {}", ran.err);
    assert!(ran.err.starts_with("replay: "), "{args:?}: {}", ran.err);
    for part in parts {
        assert!(ran.err.contains(part), "{args:?}: no {part:?} in {}", ran.err);
    }
}

#[test]
fn bad_usage() {
    for (args, part) in [
        (&[][..], "a file is needed"),
        (&["--json"], "a file is needed"),
        (&["a", "b"], "\"b\" is another"),
        (&["a", "--fast"], "\"--fast\""),
        (&["a", "--json=yes"], "\"--json=yes\""),
        (&["a", "--capacity"], "--capacity needs a value"),
        (&["a", "--capacity", "0"], "--capacity \"0\": a whole number, 1 or more"),
        (&["a", "--capacity", "1.5"], "--capacity \"1.5\""),
        (&["a", "--capacity=-1"], "--capacity \"-1\""),
        (&["a", "--capacity", "many"], "--capacity \"many\""),
        (&["a", "--capacity", "18446744073709551616"], "--capacity"),
        (&["a", "--bytes", "0"], "--bytes \"0\""),
        (&["a", "--bytes", "1 MB"], "--bytes \"1 MB\""),
        (&["a", "--bytes", "17179869184GiB"], "--bytes"),
        (&["a", "--format", "json"], "u64, rec16, text or csv"),
    ] {
        assert_fails(2, args, b"", &[part, "--help"]);
    }
}

#[test]
fn files_that_cannot_be_read() {
    assert_fails(1, &["no/such/file"], b"", &["no/such/file: "]);
    assert_fails(1, &[env!("CARGO_TARGET_TMPDIR")], b"", &["is a directory"]);
    let empty = file("empty.csv", b"");
    assert_fails(1, &[empty.to_str().unwrap()], b"", &["empty.csv: it is empty"]);
}

/// What fails whatever its name is, and so from standard input.
fn assert_bad(format: &str, content: &[u8], parts: &[&str]) {
    for content in [content, &compressed(content)] {
        assert_fails(1, &["-", "--format", format], content, parts);
    }
}

#[test]
fn content_without_requests() {
    assert_fails(1, &["-"], b"", &["standard input: it is empty"]);
    assert_fails(1, &["-"], &compressed(b""), &["no requests"]);
    assert_bad("text", b"\n  \n\r\n", &["no requests"]);
    assert_bad("csv", b"time,key,size\n", &["no requests"]);
}

#[test]
fn records_that_are_cut_short() {
    let cut = "cut short, or another format";
    assert_bad("u64", &[1; 8 * 3 + 5], &["read as u64", "5 bytes after 3 records of 8", cut]);
    assert_bad("u64", &[1; 3], &["3 bytes after 0 records", cut]);
    assert_bad("rec16", &[1; 16 + 8], &["8 bytes after 1 records of 16", cut]);
    // In the second piece that is read.
    assert_bad("u64", &[1; 80_001], &["1 bytes after 10000 records", cut]);
}

#[test]
fn binary_data_that_is_said_to_be_text() {
    let numbers: Vec<u8> = (0..1000_u64).flat_map(u64::to_le_bytes).collect();
    for format in ["text", "csv"] {
        assert_bad(format, &numbers, &["line 1: ", "is it binary?"]);
        assert_bad(format, b"1,fine\n1,\xff\xfe\n", &["line 2: not text"]);
        assert_bad(format, &[b'x'; 100_000], &["line 1: longer than 65536 bytes"]);
    }
    let named = file("binary.txt", &numbers);
    assert_fails(1, &[named.to_str().unwrap()], b"", &["binary.txt, read as text: line 1: "]);
}

#[test]
fn lines_of_csv_that_make_no_sense() {
    for (text, parts) in [
        ("1,a,5\n\n2,b\n", ["line 3: ", "3 columns are needed, and here is 2"]),
        ("alone\n", ["line 1: ", "2 columns are needed, and here is 1"]),
        ("size,x,key\n1,x\n", ["line 2: ", "3 columns"]),
        ("1,a,5\n2,b,five\n", ["line 2: ", "size \"five\": invalid digit"]),
        ("1,a,5\n2,b,-5\n", ["line 2: ", "size \"-5\""]),
        ("1,a,5\n2,b,\n", ["line 2: ", "size \"\""]),
        ("1,a,99999999999999999999\n", ["line 1: ", "too large"]),
        ("ts,what,len\n1,a,5\n", ["line 1: ", "named key, id"]),
        ("1,,5\n", ["line 1: ", "the key is empty"]),
        ("1,\"a,5\n", ["line 1: ", "a quote is not closed"]),
        ("1,\"a\"b,5\n", ["line 1: ", "neither a comma nor the end"]),
    ] {
        assert_bad("csv", text.as_bytes(), &parts);
    }
}

#[test]
fn zstd_that_is_damaged() {
    let good = compressed(&[7; 8000]);
    let mut wrong_sum = good.clone();
    *wrong_sum.last_mut().unwrap() ^= 1;
    let with_more = [&*good, b"more"].concat();
    for content in [&good[..good.len() - 5], &good[..9], &good[..4], &wrong_sum, &with_more] {
        assert_fails(1, &["-"], content, &["zstd, corrupt or cut short"]);
        assert_fails(1, &["-", "--format=u64"], content, &["zstd, corrupt or cut short"]);
    }
    let half_skipped = [&0x184D_2A50_u32.to_le_bytes()[..], &9_u32.to_le_bytes(), b"9"].concat();
    assert_fails(1, &["-"], &half_skipped, &["zstd", "skipped"]);
}

#[test]
fn other_compression() {
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0";
    assert_fails(1, &["-"], gzip, &["gzip", "only zstd"]);
    // Said to be a key, it is one.
    assert_eq!(run(&["-", "--format", "u64"], gzip).code, 0);
}

#[test]
fn a_budget_in_bytes_without_sizes() {
    assert_fails(1, &["-", "--bytes", "1KiB"], b"a\nb\n", &["--bytes needs sizes"]);
}

#[test]
fn nobody_takes_the_result() {
    /// Like a pipe whose reader is gone.
    struct Closed;

    impl std::io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let mut err = Vec::new();
    assert_eq!(crate::app::run(["-".into()], &b"a\n"[..], &mut Closed, &mut err), 1);
    assert!(String::from_utf8(err).unwrap().contains("standard output: "));
    assert_eq!(crate::app::run(["-".into()], &b"a\n"[..], &mut Closed, &mut Closed), 1);
}
