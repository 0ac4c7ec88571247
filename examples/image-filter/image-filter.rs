//! A filter for pictures: reads a binary PPM from stdin, applies the steps its arguments name, in
//! their order, and writes a binary PPM to stdout.
//!
//! 1. All arithmetic is on integers and rounds halves up, so every machine gives the same bytes.
//! 2. Nothing is written unless everything was read and every step done: no half pictures.
//! 3. No input makes it panic or take more memory than a fixed multiple of MAX_PIXELS.
//! 4. Exit codes: 0 done, 1 reading or writing failed, 2 the arguments are wrong, 3 the input is
//!    not a picture this program reads. stderr then says what was wrong.

use std::io::{Read, Write};
use std::process::exit;

const EXIT_IO: i32 = 1;
const EXIT_USAGE: i32 = 2;
const EXIT_PICTURE: i32 = 3;

/// The largest picture: full HD and a little more. Its samples are 6 MiB and a blur holds five
/// times that, which fits into the 64 MiB a function has by default.
const MAX_PIXELS: usize = 1 << 21;

/// The widest blur: a sum of (2 * 255 + 1)² samples of 255 is far below 2³².
const MAX_RADIUS: usize = 255;

const CHANNELS: usize = 3;

const USAGE: &str = "takes steps: gray, invert, blur RADIUS (1-255), shrink WIDTH HEIGHT";

struct Failure {
    code: i32,
    why: String,
}

fn failure<T>(code: i32, why: impl Into<String>) -> Result<T, Failure> {
    Err(Failure { code, why: why.into() })
}

enum Step {
    Gray,
    Invert,
    Blur(usize),
    Shrink(usize, usize),
}

/// Samples are rows from the top, pixels from the left, red, green, blue: 0-255.
struct Picture {
    width: usize,
    height: usize,
    samples: Vec<u8>,
}

// ---------------------------------------------------------------- arguments

fn step_number(
    arguments: &mut impl Iterator<Item = String>,
    what: &str,
    max: usize,
) -> Result<usize, Failure> {
    let text = match arguments.next() {
        Some(text) => text,
        None => return failure(EXIT_USAGE, format!("{} is missing; {}", what, USAGE)),
    };
    match text.parse::<usize>() {
        Ok(number) if (1..=max).contains(&number) => Ok(number),
        _ => failure(EXIT_USAGE, format!("{} is a number from 1 to {}, not {:?}", what, max, text)),
    }
}

fn parse_steps(mut arguments: impl Iterator<Item = String>) -> Result<Vec<Step>, Failure> {
    let mut steps = Vec::new();
    while let Some(name) = arguments.next() {
        steps.push(match name.as_str() {
            "gray" => Step::Gray,
            "invert" => Step::Invert,
            "blur" => Step::Blur(step_number(&mut arguments, "blur's radius", MAX_RADIUS)?),
            "shrink" => Step::Shrink(
                step_number(&mut arguments, "shrink's width", MAX_PIXELS)?,
                step_number(&mut arguments, "shrink's height", MAX_PIXELS)?,
            ),
            _ => return failure(EXIT_USAGE, format!("not a step: {:?}; {}", name, USAGE)),
        });
    }
    Ok(steps)
}

// ---------------------------------------------------------------- reading

/// A place in the header that moves on as it is read.
struct Header<'a> {
    bytes: &'a [u8],
    at: usize,
}

fn is_space(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

impl Header<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Skips space and comments, which run from a # to the end of the line.
    fn skip_space(&mut self) {
        while let Some(byte) = self.peek() {
            if byte == b'#' {
                while self.peek().map_or(false, |byte| byte != b'\n' && byte != b'\r') {
                    self.at += 1;
                }
            } else if is_space(byte) {
                self.at += 1;
            } else {
                return;
            }
        }
    }

    fn number(&mut self, what: &str) -> Result<usize, Failure> {
        self.skip_space();
        let start = self.at;
        let mut value: usize = 0;
        while let Some(byte @ b'0'..=b'9') = self.peek() {
            value = value.saturating_mul(10).saturating_add((byte - b'0') as usize);
            self.at += 1;
        }
        if self.at == start {
            return failure(EXIT_PICTURE, format!("byte {} should begin the {}", start, what));
        }
        Ok(value)
    }
}

fn read_picture(mut bytes: Vec<u8>) -> Result<Picture, Failure> {
    if !bytes.starts_with(b"P6") {
        return failure(EXIT_PICTURE, "not a binary PPM: it does not begin with P6");
    }
    let mut header = Header { bytes: &bytes, at: 2 };
    let width = header.number("width")?;
    let height = header.number("height")?;
    let max = header.number("largest value")?;
    if width == 0 || height == 0 {
        return failure(EXIT_PICTURE, format!("the picture is empty: {} x {}", width, height));
    }
    if max != 255 {
        return failure(EXIT_PICTURE, format!("the largest value must be 255, not {}", max));
    }
    if !header.peek().map_or(false, is_space) {
        return failure(EXIT_PICTURE, "the header must end with one white-space byte");
    }
    let start = header.at + 1;
    let pixels = width.saturating_mul(height);
    if pixels > MAX_PIXELS {
        let why = format!("{} x {} is larger than {} pixels", width, height, MAX_PIXELS);
        return failure(EXIT_PICTURE, why);
    }
    let (needed, given) = (pixels * CHANNELS, bytes.len() - start);
    if given != needed {
        let why = format!("{} x {} needs {} bytes of samples, not {}", width, height, needed, given);
        return failure(EXIT_PICTURE, why);
    }
    bytes.drain(..start);
    Ok(Picture { width, height, samples: bytes })
}

// ---------------------------------------------------------------- steps

/// The weights of ITU-R BT.601, in thousandths.
fn gray(picture: &mut Picture) {
    for pixel in picture.samples.chunks_exact_mut(CHANNELS) {
        let (red, green, blue) = (pixel[0] as u32, pixel[1] as u32, pixel[2] as u32);
        let level = ((red * 299 + green * 587 + blue * 114 + 500) / 1000) as u8;
        pixel.fill(level);
    }
}

fn invert(picture: &mut Picture) {
    for sample in &mut picture.samples {
        *sample = 255 - *sample;
    }
}

/// For each place of a line of `length` values: the sum of the values at most `radius` away, where
/// the first and the last value go on for ever. `get` and `put` address the line.
fn slide(
    length: usize,
    radius: usize,
    get: impl Fn(usize) -> u32,
    mut put: impl FnMut(usize, u32),
) {
    let last = length - 1;
    let mut sum = get(0) * (radius as u32 + 1);
    for ahead in 1..=radius {
        sum += get(ahead.min(last));
    }
    for at in 0..length {
        put(at, sum);
        sum += get((at + radius + 1).min(last));
        sum -= get(at.saturating_sub(radius));
    }
}

/// The mean of the square of side 2 * radius + 1 around each pixel; the edges are repeated.
fn blur(picture: &mut Picture, radius: usize) {
    let (width, height) = (picture.width, picture.height);
    let stride = width * CHANNELS;
    let mut rows = vec![0u32; picture.samples.len()];
    for y in 0..height {
        for channel in 0..CHANNELS {
            let start = y * stride + channel;
            let samples = &picture.samples;
            slide(
                width,
                radius,
                |x| samples[start + x * CHANNELS] as u32,
                |x, sum| rows[start + x * CHANNELS] = sum,
            );
        }
    }
    let side = 2 * radius as u32 + 1;
    let area = side * side;
    for column in 0..stride {
        let samples = &mut picture.samples;
        slide(
            height,
            radius,
            |y| rows[y * stride + column],
            |y, sum| samples[y * stride + column] = ((sum + area / 2) / area) as u8,
        );
    }
}

/// Each new pixel is the mean of the source pixels under it; pixels are not split: the one at
/// `x` covers the columns from x * old / new to before (x + 1) * old / new, rounded down.
fn shrink(picture: &mut Picture, width: usize, height: usize) -> Result<(), Failure> {
    if width > picture.width || height > picture.height {
        let (w, h) = (picture.width, picture.height);
        let why = format!("cannot shrink {} x {} to {} x {}", w, h, width, height);
        return failure(EXIT_USAGE, why);
    }
    // In 64 bits: a coordinate times a length can pass 2³².
    let edge = |at: usize, old: usize, new: usize| (at as u64 * old as u64 / new as u64) as usize;
    let mut samples = Vec::with_capacity(width * height * CHANNELS);
    for y in 0..height {
        let rows = edge(y, picture.height, height)..edge(y + 1, picture.height, height);
        for x in 0..width {
            let columns = edge(x, picture.width, width)..edge(x + 1, picture.width, width);
            let count = (rows.len() * columns.len()) as u64;
            let mut sums = [0u64; CHANNELS];
            for row in rows.clone() {
                let from = (row * picture.width + columns.start) * CHANNELS;
                let to = (row * picture.width + columns.end) * CHANNELS;
                for pixel in picture.samples[from..to].chunks_exact(CHANNELS) {
                    for channel in 0..CHANNELS {
                        sums[channel] += pixel[channel] as u64;
                    }
                }
            }
            samples.extend(sums.iter().map(|sum| ((sum + count / 2) / count) as u8));
        }
    }
    *picture = Picture { width, height, samples };
    Ok(())
}

// ---------------------------------------------------------------- the program

fn run() -> Result<(), Failure> {
    // An argument that is not UTF-8 is no step either; args() would panic on it.
    let arguments = std::env::args_os().skip(1).map(|text| text.to_string_lossy().into_owned());
    let steps = parse_steps(arguments)?;

    let mut bytes = Vec::new();
    if let Err(error) = std::io::stdin().lock().read_to_end(&mut bytes) {
        return failure(EXIT_IO, format!("cannot read stdin: {}", error));
    }
    let mut picture = read_picture(bytes)?;
    for step in steps {
        match step {
            Step::Gray => gray(&mut picture),
            Step::Invert => invert(&mut picture),
            Step::Blur(radius) => blur(&mut picture, radius),
            Step::Shrink(width, height) => shrink(&mut picture, width, height)?,
        }
    }

    let mut out = std::io::stdout().lock();
    let written = write!(out, "P6\n{} {}\n255\n", picture.width, picture.height)
        .and_then(|()| out.write_all(&picture.samples))
        .and_then(|()| out.flush());
    written.or_else(|error| failure(EXIT_IO, format!("cannot write stdout: {}", error)))
}

fn main() {
    if let Err(Failure { code, why }) = run() {
        // With stderr gone as well there is nobody left to tell.
        let _ = writeln!(std::io::stderr(), "image-filter: {}", why);
        exit(code);
    }
}
