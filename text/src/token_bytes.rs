//! What each id stands for in running text, worked out once when a tokenizer is loaded.

use serde_json::Value;

/// How a decoder turns tokens into text, as far as that can be said token by token.
pub enum Scheme {
    /// GPT-2's alphabet: every character is one byte.
    ByteLevel,
    Pieces(Pieces),
    /// Text of a token depends on its neighbours; only the library's own decoder is right.
    Contextual,
}

#[derive(Default)]
pub struct Pieces {
    replace: Vec<(String, String)>,
    byte_fallback: bool,
    /// Spaces that are dropped at the start of a whole text.
    pub strip_start: usize,
}

impl Scheme {
    /// `decoder`: the decoder section of tokenizer.json.
    pub fn of(decoder: &Value) -> Scheme {
        if decoder["type"] == "ByteLevel" {
            return Scheme::ByteLevel;
        }
        let mut pieces = Pieces::default();
        if decoder["type"] == "Sequence" {
            let Some(steps) = decoder["decoders"].as_array() else {
                return Scheme::Contextual;
            };
            if steps.len() == 1 {
                return Scheme::of(&steps[0]);
            }
            for step in steps {
                if pieces.add(step).is_none() {
                    return Scheme::Contextual;
                }
            }
            return Scheme::Pieces(pieces);
        }
        match pieces.add(decoder) {
            Some(()) => Scheme::Pieces(pieces),
            None => Scheme::Contextual,
        }
    }

    pub fn bytes_of(&self, token: &str) -> Vec<u8> {
        match self {
            Scheme::ByteLevel => byte_level(token),
            Scheme::Pieces(pieces) => pieces.bytes_of(token),
            Scheme::Contextual => token.as_bytes().to_vec(),
        }
    }
}

impl Pieces {
    fn add(&mut self, step: &Value) -> Option<()> {
        match step["type"].as_str()? {
            "Replace" => {
                let from = step["pattern"]["String"].as_str()?;
                if from.is_empty() {
                    return None;
                }
                self.replace.push((from.into(), step["content"].as_str()?.into()));
            }
            "ByteFallback" => self.byte_fallback = true,
            "Fuse" => {}
            "Strip" => {
                if step["content"] != " " || step["stop"].as_u64()? != 0 {
                    return None;
                }
                self.strip_start = usize::try_from(step["start"].as_u64()?).ok()?;
            }
            "Metaspace" => {
                self.replace.push((step["replacement"].as_str()?.into(), " ".into()));
                if step["prepend_scheme"] != "never" {
                    self.strip_start = 1;
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn bytes_of(&self, token: &str) -> Vec<u8> {
        if self.byte_fallback {
            if let Some(byte) = fallback_byte(token) {
                return vec![byte];
            }
        }
        let mut text = token.to_string();
        for (from, to) in &self.replace {
            text = text.replace(from, to);
        }
        text.into_bytes()
    }
}

fn fallback_byte(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() != 2 {
        return None;
    }
    u8::from_str_radix(hex, 16).ok()
}

/// A token with a character outside the alphabet is plain text, as in the library.
fn byte_level(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(alphabet_byte).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

/// Printable Latin-1 stands for itself; the 68 other bytes, ascending, are U+0100, U+0101, …
fn alphabet_byte(c: char) -> Option<u8> {
    let code = c as u32;
    match code {
        33..=126 | 161..=172 | 174..=255 => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 127) as u8),
        0x143 => Some(173),
        _ => None,
    }
}

/// The bytes of all ids in one buffer.
pub struct Table {
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl Table {
    /// None when the bytes do not fit 32-bit offsets.
    pub fn new(entries: impl Iterator<Item = Vec<u8>>) -> Option<Table> {
        let mut table = Table { ends: Vec::new(), bytes: Vec::new() };
        for entry in entries {
            table.bytes.extend_from_slice(&entry);
            table.ends.push(u32::try_from(table.bytes.len()).ok()?);
        }
        table.ends.shrink_to_fit();
        table.bytes.shrink_to_fit();
        Some(table)
    }

    pub fn len(&self) -> u32 {
        self.ends.len() as u32
    }

    pub fn get(&self, id: u32) -> &[u8] {
        let i = id as usize;
        if i >= self.ends.len() {
            return &[];
        }
        let begin = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.bytes[begin..self.ends[i] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_covers_every_byte_once() {
        let mut seen = [false; 256];
        for code in 0..0x200u32 {
            if let Some(byte) = char::from_u32(code).and_then(alphabet_byte) {
                assert!(!seen[byte as usize], "{code:#x}");
                seen[byte as usize] = true;
            }
        }
        assert!(seen.iter().all(|s| *s));
        assert_eq!(byte_level("Ġa"), b" a");
        assert_eq!(byte_level("Ċ"), b"\n");
    }
}
