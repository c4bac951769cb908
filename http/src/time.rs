//! Times as text: ISO-8601 in UTC, read in any zone. Formatting is done by hand because a pop
//! prints one time per message.

use queen_engine::ids::TimeUs;

/// `2026-10-06T12:41:34.021Z`: `createdAt`, lease ends.
pub fn iso_ms(time: TimeUs) -> String {
    format(time, 3)
}

/// `2026-10-06T12:41:34.021000Z`: compared as text by clients, hence the fixed width.
pub fn iso_us(time: TimeUs) -> String {
    format(time, 6)
}

/// Appends `createdAt` form without allocating.
pub fn write_iso_ms(out: &mut Vec<u8>, time: TimeUs) {
    write(out, time, 3);
}

fn format(time: TimeUs, digits: usize) -> String {
    let mut out = Vec::with_capacity(27);
    write(&mut out, time, digits);
    String::from_utf8_lossy(&out).into_owned()
}

fn write(out: &mut Vec<u8>, time: TimeUs, digits: usize) {
    // Years 0 to 9999 keep the width; anything else is pulled to the nearer end.
    let micros = time
        .0
        .clamp(-62_167_219_200_000_000, 253_402_300_799_999_999);
    let seconds = micros.div_euclid(1_000_000);
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400);
    number(out, year, 4);
    out.push(b'-');
    number(out, month, 2);
    out.push(b'-');
    number(out, day, 2);
    out.push(b'T');
    number(out, second / 3600, 2);
    out.push(b':');
    number(out, second / 60 % 60, 2);
    out.push(b':');
    number(out, second % 60, 2);
    out.push(b'.');
    let fraction = micros.rem_euclid(1_000_000);
    number(
        out,
        if digits == 3 {
            fraction / 1000
        } else {
            fraction
        },
        digits,
    );
    out.push(b'Z');
}

fn number(out: &mut Vec<u8>, value: i64, width: usize) {
    let mut digits = [b'0'; 6];
    let mut rest = value;
    for digit in digits[..width].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest.rem_euclid(10)).unwrap_or(0);
        rest /= 10;
    }
    out.extend_from_slice(&digits[..width]);
}

/// The proleptic Gregorian date of a day counted from 1970-01-01, by counting from 1 March of
/// year 0 so that the leap day is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Reads an RFC 3339 time with any offset and precision; a time without a zone is UTC.
pub fn parse_iso(text: &str) -> Option<TimeUs> {
    let text = text.trim();
    // A `+` that a client forgot to encode arrives as a space.
    let repaired = text.replace(' ', "+");
    [text, repaired.as_str()].into_iter().find_map(|candidate| {
        if let Ok(time) = candidate.parse::<jiff::Timestamp>() {
            return Some(TimeUs(time.as_microsecond()));
        }
        let civil = candidate.strip_suffix(['Z', 'z']).unwrap_or(candidate);
        let civil = civil.parse::<jiff::civil::DateTime>().ok()?;
        // The last day of the year 9999 lies behind the largest timestamp: as late as can be.
        let time = jiff::tz::Offset::UTC
            .to_timestamp(civil)
            .unwrap_or(jiff::Timestamp::MAX);
        Some(TimeUs(time.as_microsecond()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_fixed_width_and_reads_back() {
        let time = TimeUs(1_791_290_494_021_007);
        assert_eq!(iso_ms(time), "2026-10-06T12:41:34.021Z");
        assert_eq!(iso_us(time), "2026-10-06T12:41:34.021007Z");
        assert_eq!(parse_iso(&iso_us(time)), Some(time));
        assert_eq!(iso_ms(TimeUs(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso_ms(TimeUs(-1)), "1969-12-31T23:59:59.999Z");
        assert_eq!(
            iso_ms(TimeUs(951_782_400_000_000)),
            "2000-02-29T00:00:00.000Z"
        );
        assert!(parse_iso("9999-12-31T23:59:59Z") > parse_iso("9999-12-29T23:59:59Z"));
        assert_eq!(iso_us(TimeUs(i64::MAX)).len(), 27);
        assert_eq!(iso_us(TimeUs(i64::MIN)).len(), 27);
    }

    #[test]
    fn agrees_with_a_calendar_library() {
        for step in 0..4000_i64 {
            let time = TimeUs(step * 777_777_777_777 - 1_000_000_000_000_000);
            let theirs = jiff::Timestamp::from_microsecond(time.0).unwrap();
            assert_eq!(parse_iso(&iso_us(time)), Some(time), "{theirs}");
        }
    }

    #[test]
    fn reads_offsets_and_missing_parts() {
        let noon = parse_iso("2026-01-01T12:00:00Z");
        assert!(noon.is_some());
        assert_eq!(parse_iso("2026-01-01T14:00:00+02:00"), noon);
        assert_eq!(parse_iso("2026-01-01T14:00:00 02:00"), noon);
        assert_eq!(parse_iso("2026-01-01T12:00:00"), noon);
        assert_eq!(parse_iso("yesterday"), None);
        assert_eq!(parse_iso(""), None);
    }
}
