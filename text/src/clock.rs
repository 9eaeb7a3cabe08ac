//! strftime, for templates that print a date.

use std::ffi::CString;

const MAX_FORMAT: usize = 256;
const MAX_TEXT: usize = 4096;

/// None when the format cannot be used.
pub fn format_local(unix_seconds: i64, format: &str) -> Option<String> {
    if format.is_empty() {
        return Some(String::new());
    }
    if format.len() > MAX_FORMAT || has_width(format) {
        return None;
    }
    let format = CString::new(format).ok()?;
    let seconds: libc::time_t = unix_seconds;
    let mut text = vec![0u8; MAX_TEXT];
    // Safety: `parts` is plain data that localtime_r fills; strftime writes at most text.len().
    let written = unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&seconds, &mut parts).is_null() {
            return None;
        }
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &parts)
    };
    text.truncate(written);
    String::from_utf8(text).ok()
}

/// glibc pads "%9999999Y" to that width, also where the buffer ends.
fn has_width(format: &str) -> bool {
    let bytes = format.as_bytes();
    bytes.windows(3).any(|w| w[0] == b'%' && w[1].is_ascii_digit() && w[2].is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::format_local;

    #[test]
    fn formats() {
        assert_eq!(format_local(1_700_000_000, "%Y").as_deref(), Some("2023"));
        assert_eq!(format_local(0, ""), Some(String::new()));
        assert_eq!(format_local(0, "%99999999Y"), None);
        assert_eq!(format_local(0, "a\0b"), None);
    }
}
