//! One tokenizer, whichever file it comes from.

use std::str::FromStr;
use std::time::Duration;

use serde_json::Value;
use tokenizers::models::ModelWrapper;
use tokenizers::Tokenizer as Library;

use crate::failure::Failure;
use crate::isolated::{self, Limits, Outcome};
use crate::token_bytes::{Scheme, Table};

const MAX_INPUT: usize = 64 << 20;
const MAX_JSON: usize = 256 << 20;
const BASE_BYTES: usize = 256 << 20;
const BYTES_PER_JSON_BYTE: usize = 64;
const LOAD_TIME: Duration = Duration::from_secs(60);
const STACK_BYTES: usize = 64 << 20;
const MAX_GROWTH: usize = 4096;
/// The largest published vocabularies have about 2^18 entries.
pub const MAX_IDS: u32 = 1 << 24;

pub struct Tokenizer {
    library: Library,
    scheme: Scheme,
    table: Table,
    special: Vec<bool>,
}

impl Tokenizer {
    pub fn from_json(json: &[u8]) -> Result<Tokenizer, Failure> {
        if json.len() > MAX_JSON {
            return Err(Failure::corrupt(format!("larger than {} MiB", MAX_JSON >> 20)));
        }
        let json = std::str::from_utf8(json).map_err(|e| Failure::corrupt(e.to_string()))?;
        let json = json.to_string();
        let limits = Limits {
            bytes: BASE_BYTES + BYTES_PER_JSON_BYTE * json.len(),
            stack_bytes: STACK_BYTES,
            time: LOAD_TIME,
        };
        match isolated::run(&limits, move || Self::load(&json))? {
            Outcome::Done(tokenizer) => Ok(tokenizer),
            Outcome::RanAway(why) => Err(Failure::corrupt(format!("not loaded: {why}"))),
        }
    }

    fn load(json: &str) -> Result<Tokenizer, Failure> {
        let mut library = Library::from_str(json).map_err(|e| Failure::corrupt(e.to_string()))?;
        // A prompt is never cut, padded or tokenised at random, whatever the file was saved with.
        library.with_padding(None);
        library.with_truncation(None).map_err(|e| Failure::corrupt(e.to_string()))?;
        if let ModelWrapper::BPE(bpe) = library.get_model() {
            if bpe.dropout.is_some_and(|p| p > 0.0) {
                return Err(Failure::unsupported("BPE dropout makes the ids random"));
            }
        }

        let normalizer = serde_json::to_value(library.get_normalizer()).unwrap_or(Value::Null);
        if growth(&normalizer) > MAX_GROWTH {
            return Err(Failure::corrupt("the normalizer makes text far longer"));
        }
        let decoder = serde_json::to_value(library.get_decoder()).unwrap_or(Value::Null);
        let scheme = Scheme::of(&decoder);
        let vocab = library.get_vocab(true);
        let largest = vocab.values().copied().max().unwrap_or(0);
        if vocab.is_empty() {
            return Err(Failure::corrupt("the vocabulary is empty"));
        }
        if largest >= MAX_IDS {
            return Err(Failure::corrupt(format!("token id {largest} is too large")));
        }
        let mut entries = vec![Vec::new(); largest as usize + 1];
        let mut special = vec![false; entries.len()];
        for (token, id) in vocab {
            entries[id as usize] = scheme.bytes_of(&token);
        }
        for (id, added) in library.get_added_tokens_decoder() {
            if id <= largest {
                entries[id as usize] = added.content.into_bytes();
                special[id as usize] = added.special;
            }
        }
        Self::assemble(library, scheme, entries, special)
    }

    pub fn assemble(
        library: Library,
        scheme: Scheme,
        entries: Vec<Vec<u8>>,
        special: Vec<bool>,
    ) -> Result<Tokenizer, Failure> {
        let table = Table::new(entries.into_iter())
            .ok_or_else(|| Failure::corrupt("the texts of all tokens are larger than 4 GiB"))?;
        Ok(Tokenizer { library, scheme, table, special })
    }

    pub fn encode(&self, text: &[u8], add_special: bool) -> Result<Vec<u32>, Failure> {
        if text.len() > MAX_INPUT {
            return Err(Failure::invalid(format!(
                "the text is larger than {} MiB",
                MAX_INPUT >> 20
            )));
        }
        let text = String::from_utf8_lossy(text);
        let encoding = self
            .library
            .encode_fast(text.as_ref(), add_special)
            .map_err(|e| Failure::invalid(format!("the text cannot be tokenised: {e}")))?;
        Ok(encoding.get_ids().to_vec())
    }

    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, Failure> {
        if let Scheme::Contextual = self.scheme {
            return self
                .library
                .decode(ids, skip_special)
                .map_err(|e| Failure::invalid(format!("the ids cannot be decoded: {e}")));
        }
        let mut bytes = Vec::new();
        for &id in ids {
            if !(skip_special && self.is_special(id)) {
                bytes.extend_from_slice(self.bytes_of(id));
            }
        }
        let mut begin = 0;
        if let Scheme::Pieces(pieces) = &self.scheme {
            while begin < bytes.len().min(pieces.strip_start) && bytes[begin] == b' ' {
                begin += 1;
            }
        }
        Ok(String::from_utf8_lossy(&bytes[begin..]).into_owned())
    }

    pub fn bytes_of(&self, id: u32) -> &[u8] {
        self.table.get(id)
    }

    pub fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }

    pub fn size(&self) -> u32 {
        self.table.len()
    }

    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.library.token_to_id(token).filter(|id| *id < self.size())
    }
}

/// How many times longer replacements can make a text.
fn growth(normalizer: &Value) -> usize {
    let steps = normalizer["normalizers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let content = normalizer["content"].as_str().map_or(1, |c| c.len().max(1));
    steps.iter().map(growth).fold(content, usize::saturating_mul)
}

#[cfg(test)]
mod tests {
    use super::growth;
    use serde_json::json;

    #[test]
    fn replacements_multiply() {
        let step = json!({"type": "Replace", "content": "ab"});
        assert_eq!(growth(&step), 2);
        assert_eq!(growth(&json!({"type": "Sequence", "normalizers": vec![step; 5]})), 32);
        assert_eq!(growth(&json!(null)), 1);
    }
}
