//! Every format, plain and compressed, in pieces of any size.

use std::ffi::OsStr;
use std::io::{self, BufReader, Read};

use crate::format::Format;
use crate::input::Input;
use crate::read::read;
use crate::trace::Trace;
use crate::zstd::Zstd;
use crate::{compressed, file, sized, trace};

const U64: fn(u64) -> [u8; 8] = u64::to_le_bytes;

fn rec16(key: u64, size: u32) -> [u8; 16] {
    (u128::from(key) | u128::from(size) << 64 | 77 << 96).to_le_bytes()
}

/// The same five requests of three keys in each format; `true` where they have sizes.
fn samples() -> [(Format, Vec<u8>, bool); 5] {
    let keys = [1, 2, u64::MAX, 1, 2];
    let text = "one\ntwo\n\nthree three\r\none\n   \ntwo";
    let csv = "0,one,5\n1,two,6\n2,three three,7\n3,one,5\n3,two,6\n";
    let sizes = [5, 6, 7, 5, 6];
    let records = keys.iter().zip(sizes).flat_map(|(key, size)| rec16(*key, size)).collect();
    [
        (Format::U64, keys.map(U64).concat(), false),
        (Format::Rec16, records, true),
        (Format::Text, text.into(), false),
        (Format::Csv, csv.into(), true),
        (Format::Csv, "7,a\n7,b\n7,c\n7,a\n8,b".into(), false),
    ]
}

fn expected(has_sizes: bool) -> Trace {
    if has_sizes { sized([(1, 5), (2, 6), (3, 7), (1, 5), (2, 6)]) } else { trace([1, 2, 3, 1, 2]) }
}

/// Gives one byte at a time, as a slow pipe does.
struct Drip<'a>(&'a [u8]);

impl Read for Drip<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let one = self.0.len().min(1);
        self.0.read(&mut buffer[..one])
    }
}

fn read_csv(text: &str) -> Result<Trace, String> {
    read(text.as_bytes(), Format::Csv)
}

fn read_input(stdin: &[u8]) -> (String, Result<Trace, String>) {
    let input = Input::open(OsStr::new("-"), stdin, None).unwrap();
    (input.to_string(), input.read())
}

#[test]
fn each_format_is_read_in_any_pieces() {
    for (format, bytes, has_sizes) in samples() {
        assert_eq!(read(&*bytes, format), Ok(expected(has_sizes)), "{format}");
        assert_eq!(read(Drip(&bytes), format), Ok(expected(has_sizes)), "{format}");
    }
}

#[test]
fn each_format_is_known_by_its_name_also_compressed() {
    for (at, (format, bytes, has_sizes)) in samples().into_iter().enumerate() {
        let end = if format == Format::Text { "txt".to_owned() } else { format.to_string() };
        let contents = [(end.clone(), bytes.clone()), (format!("{end}.zst"), compressed(&bytes))];
        for (end, content) in contents {
            let path = file(&format!("named-{at}.{end}"), &content);
            let input = Input::open(path.as_os_str(), io::empty(), None).unwrap();
            let name = input.to_string();
            assert!(name.contains(&format!(": {format}, by its name")), "{name}");
            assert_eq!(name.contains("zstd"), end.ends_with("zst"), "{name}");
            assert_eq!(input.read(), Ok(expected(has_sizes)), "{name}");
        }
    }
}

#[test]
fn all_but_rec16_are_known_by_content() {
    for (format, bytes, has_sizes) in samples() {
        if format == Format::Rec16 {
            continue;
        }
        for content in [bytes.clone(), compressed(&bytes)] {
            let (name, trace) = read_input(&content);
            assert!(name.contains(&format!(": {format}, by its content")), "{name}");
            assert_eq!(trace, Ok(expected(has_sizes)), "{name}");
        }
    }
}

#[test]
fn a_format_that_is_given_counts_more_than_the_name() {
    let path = file("told.csv", b"1,a\n1,a\n2,a\n");
    let input = Input::open(path.as_os_str(), io::empty(), Some(Format::Text)).unwrap();
    assert!(input.to_string().contains("text, as told"));
    assert_eq!(input.read(), Ok(trace([0, 0, 1])));
}

#[test]
fn names_and_contents() {
    let name = Format::of_name;
    assert_eq!(name("a.u64"), Some(Format::U64));
    assert_eq!(name("dir.csv/a.b.REC16.ZST"), Some(Format::Rec16));
    assert_eq!(name("a.csv.zstd"), Some(Format::Csv));
    assert_eq!(name("a.zst"), None);
    assert_eq!(name("csv"), None);

    let content = Format::of_content;
    assert_eq!(content(b"\xff\xff\xff\xff\xff\xff\xff\xff"), Format::U64);
    assert_eq!(content(b"a key\nanother, with a comma\n"), Format::Text);
    assert_eq!(content(b"1.5,a\n"), Format::Csv);
    assert_eq!(content(b"\n\nsize,url\n"), Format::Csv);
    assert_eq!(content(b"\xef\xbb\xbftime,key\n"), Format::Csv);
    // The last character is cut in two.
    assert_eq!(content(b"caf\xc3"), Format::Text);
}

#[test]
fn columns_are_found_by_their_names() {
    let expected = Ok(sized([(1, 10), (2, 0), (1, 10)]));
    for text in [
        "time,key,size\n1,a,10\n2,b,0\n3,a,10\n",
        "size,op,Object ID\n10,get,a\n0,get,b\n10,get,a\n",
        "# timestamp, lbn, op, size, next\r\n1, a, r, 10, 3\r\n2,b,r,0,-1\r\n3,a,r,10,-1\r\n",
        "\u{feff}key,\"Obj-Size\"\n\"a\",\"10\"\nb,0\na,10\n",
        "1,a,10,more,columns\n2,b,0\n3,a,10,\n",
    ] {
        assert_eq!(read_csv(text), expected, "{text:?}");
    }
    assert_eq!(read_csv("key\na\nb\na\n"), Ok(trace([1, 2, 1])));
}

#[test]
fn quotes_keep_commas_and_quotes_in_a_key() {
    let text = "1,\"a,b\",3\n2, \"a\"\"b\" ,3\n3,\"a,b\" ,3\n4,a\"b,3\n";
    assert_eq!(read_csv(text), Ok(sized([(1, 3), (2, 3), (1, 3), (2, 3)])));
}

#[test]
fn frames_of_zstd_follow_each_other_wherever_they_are_cut() {
    let keys: Vec<u8> = (0..40_000_u64).flat_map(|key| U64(key * key % 10_007)).collect();
    let whole = read(&*keys, Format::U64);
    let skipped = [&0x184D_2A53_u32.to_le_bytes()[..], &5_u32.to_le_bytes(), b"notes"].concat();
    for cut in [0, 3, 8, 200_001, keys.len()] {
        let (first, second) = keys.split_at(cut);
        let frames = [&*skipped, &compressed(first), &skipped, &compressed(second)].concat();
        assert_eq!(read(Zstd::new(&*frames), Format::U64), whole, "{cut}");
        let (name, trace) = read_input(&frames);
        assert!(name.contains("zstd"), "{name}");
        assert_eq!(trace, whole, "{cut}");
    }
}

#[test]
fn no_damage_to_zstd_goes_unnoticed() {
    let content: Vec<u8> = (0..60_u64).flat_map(|key| U64(key % 7)).collect();
    let good = compressed(&content);
    let decompress = |bytes: &[u8]| {
        let mut content = Vec::new();
        Zstd::new(BufReader::new(bytes)).read_to_end(&mut content).map(|_| content)
    };
    assert_eq!(decompress(&good).unwrap(), content);
    for length in 1..good.len() {
        assert!(decompress(&good[..length]).is_err(), "cut to {length} bytes");
    }
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            // Some bits mean nothing to a reader of the whole content.
            if let Ok(read) = decompress(&bad) {
                assert_eq!(read, content, "bit {bit} of byte {at}");
            }
        }
    }
}
