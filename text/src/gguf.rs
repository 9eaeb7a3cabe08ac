//! GGUF vocabularies (tokenizer.ggml.*) as tokenizers of the same library.

use std::collections::HashSet;

use serde_json::json;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::replace::Replace;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer as Library};

use crate::failure::{Failure, Kind};
use crate::token_bytes::Scheme;
use crate::tokenizer::{Tokenizer, MAX_IDS};

pub struct Vocabulary<'a> {
    pub model: &'a str,
    pub pre: &'a str,
    pub tokens: Vec<&'a str>,
    /// As many as tokens, or none.
    pub types: &'a [i32],
    pub merges: Vec<&'a str>,
}

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// A line, or the ends of lines between two.
const LINES: &str = r"[^\n]+|\n+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Of o200k and its relatives: words are cut where small letters end.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How text is cut before BPE, by the name that the file gives.
struct Rule {
    pattern: &'static str,
    single_digits_first: bool,
    ignore_merges: bool,
}

fn rule(pre: &str) -> Option<Rule> {
    let (pattern, single_digits_first, ignore_merges) = match pre {
        "gpt-2" | "gpt2" | "default" => (GPT2, false, false),
        "smollm" => (GPT2, true, false),
        "qwen2" | "deepseek-r1-qwen" => (QWEN2, false, false),
        "qwen35" => (QWEN35, false, false),
        "gpt-4o" => (GPT4O, false, false),
        "llama-bpe" | "llama3" | "llama-v3" | "lfm2" => (LLAMA3, false, true),
        _ => return None,
    };
    Some(Rule { pattern, single_digits_first, ignore_merges })
}

pub fn build(vocabulary: &Vocabulary) -> Result<Tokenizer, Failure> {
    match vocabulary.model {
        "gpt2" => build_byte_level(vocabulary),
        "gemma4" => build_gemma4(vocabulary),
        other => Err(Failure::unsupported(format!(
            "GGUF tokenizer model \"{}\" is not supported, only \"gpt2\" (byte-level BPE) and \
             \"gemma4\"",
            other.escape_default()
        ))),
    }
}

/// Text as characters of GPT-2's alphabet, cut by the rule that the file names.
fn build_byte_level(vocabulary: &Vocabulary) -> Result<Tokenizer, Failure> {
    let rule = rule(vocabulary.pre).ok_or_else(|| {
        Failure::unsupported(format!(
            "GGUF pre-tokenizer \"{}\" is not supported",
            vocabulary.pre.escape_default()
        ))
    })?;
    check(vocabulary)?;
    let mut library = Library::new(model(vocabulary, rule.ignore_merges, false)?);
    library.with_pre_tokenizer(Some(pre_tokenizer(&rule)?));
    library.with_decoder(Some(ByteLevel::new(false, true, false)));
    finish(vocabulary, library, Scheme::ByteLevel, Vec::new())
}

/// Text as it is, its spaces as U+2581 and what no token holds as bytes. Lines are not cut further.
fn build_gemma4(vocabulary: &Vocabulary) -> Result<Tokenizer, Failure> {
    check(vocabulary)?;
    let used = |id: &usize| kind_of(vocabulary, *id) != UNUSED;
    let ids = (0..vocabulary.tokens.len()).filter(used);
    let tokens: HashSet<&str> = ids.map(|id| vocabulary.tokens[id]).collect();
    if let Some(byte) = (0..=255u8).find(|b| !tokens.contains(format!("<{b:#04X}>").as_str())) {
        // The library would leave such text out, without a word.
        return Err(Failure::corrupt(format!("the vocabulary has no token <{byte:#04X}>")));
    }
    let mut library = Library::new(model(vocabulary, false, true)?);
    library
        .with_normalizer(Some(Replace::new(" ", "\u{2581}").map_err(internal)?))
        .map_err(internal)?;
    library.with_pre_tokenizer(Some(split(LINES)?));
    let scheme = Scheme::of(&json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]}));
    let whole = unmerged_line_ends(vocabulary, &library)?;
    finish(vocabulary, library, scheme, whole)
}

/// Tokens of several line ends that the merges do not lead to: they stand for such a run all the
/// same, as in Gemma's own tokenizer, where they are added tokens.
fn unmerged_line_ends<'a>(
    vocabulary: &Vocabulary<'a>,
    library: &Library,
) -> Result<Vec<&'a str>, Failure> {
    let mut found = Vec::new();
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        let ends = token.len() > 1 && token.bytes().all(|b| b == b'\n');
        if !ends || kind_of(vocabulary, id) != NORMAL {
            continue;
        }
        let encoding = library.encode_fast(*token, false).map_err(internal)?;
        if encoding.get_ids().len() != 1 {
            found.push(*token);
        }
    }
    Ok(found)
}

/// `whole`: normal tokens that are found before all merges.
fn finish(
    vocabulary: &Vocabulary,
    mut library: Library,
    scheme: Scheme,
    whole: Vec<&str>,
) -> Result<Tokenizer, Failure> {
    let mut entries = Vec::with_capacity(vocabulary.tokens.len());
    let mut special = Vec::with_capacity(vocabulary.tokens.len());
    let mut added: Vec<_> =
        whole.into_iter().map(|token| AddedToken::from(token, false).normalized(false)).collect();
    let mut added_texts = HashSet::new();
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        let kind = kind_of(vocabulary, id);
        let is_special = kind == CONTROL || kind == UNKNOWN;
        special.push(is_special);
        entries.push(match kind {
            CONTROL | UNKNOWN | USER_DEFINED => token.as_bytes().to_vec(),
            UNUSED => Vec::new(),
            _ => scheme.bytes_of(token),
        });
        let is_added = is_special || kind == USER_DEFINED;
        if is_added && !token.is_empty() && added_texts.insert(*token) {
            added.push(AddedToken::from(*token, is_special).normalized(false));
        }
    }
    library.add_tokens(added).map_err(|e| Failure::corrupt(e.to_string()))?;
    Tokenizer::assemble(library, scheme, entries, special)
}

fn kind_of(vocabulary: &Vocabulary, id: usize) -> i32 {
    vocabulary.types.get(id).copied().unwrap_or(NORMAL)
}

fn check(vocabulary: &Vocabulary) -> Result<(), Failure> {
    let count = vocabulary.tokens.len();
    if count == 0 || count >= MAX_IDS as usize {
        return Err(Failure::corrupt(format!("a vocabulary of {count} tokens")));
    }
    if !vocabulary.types.is_empty() && vocabulary.types.len() != count {
        return Err(Failure::corrupt(format!(
            "{} token types for {count} tokens",
            vocabulary.types.len()
        )));
    }
    Ok(())
}

fn model(
    vocabulary: &Vocabulary,
    ignore_merges: bool,
    byte_fallback: bool,
) -> Result<BPE, Failure> {
    let mut vocab = tokenizers::models::bpe::Vocab::default();
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        if kind_of(vocabulary, id) != UNUSED {
            // Some files repeat a string: the first id is the one to encode with.
            vocab.entry((*token).to_string()).or_insert(id as u32);
        }
    }
    let mut merges = Vec::with_capacity(vocabulary.merges.len());
    for (rank, merge) in vocabulary.merges.iter().enumerate() {
        let (left, right) = merge.split_once(' ').ok_or_else(|| {
            Failure::corrupt(format!("merge {rank} is not two tokens: \"{}\"", short(merge)))
        })?;
        merges.push((left.to_string(), right.to_string()));
    }
    BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(ignore_merges)
        .byte_fallback(byte_fallback)
        .build()
        .map_err(|e| Failure::corrupt(e.to_string()))
}

fn short(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_default).collect()
}

fn internal(error: impl ToString) -> Failure {
    Failure::new(Kind::Internal, error.to_string())
}

fn split(pattern: &str) -> Result<Split, Failure> {
    let pattern = SplitPattern::Regex(pattern.to_string());
    Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(internal)
}

// The pattern stands in a Split step, not in ByteLevel, because ByteLevel goes on silently with
// uncut text when the pattern runs into the engine's limits.
fn pre_tokenizer(rule: &Rule) -> Result<Sequence, Failure> {
    let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
    if rule.single_digits_first {
        steps.push(Digits::new(true).into());
    }
    steps.push(split(rule.pattern)?.into());
    steps.push(ByteLevel::new(false, true, false).into());
    Ok(Sequence::new(steps))
}
