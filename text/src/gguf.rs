//! GGUF vocabularies (tokenizer.ggml.*) as tokenizers of the same library.

use std::collections::HashSet;

use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer as Library};

use crate::failure::Failure;
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
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

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
        "qwen2" => (QWEN2, false, false),
        "qwen35" => (QWEN35, false, false),
        "llama-bpe" | "llama3" | "llama-v3" => (LLAMA3, false, true),
        _ => return None,
    };
    Some(Rule { pattern, single_digits_first, ignore_merges })
}

pub fn build(vocabulary: &Vocabulary) -> Result<Tokenizer, Failure> {
    if vocabulary.model != "gpt2" {
        return Err(Failure::unsupported(format!(
            "GGUF tokenizer model \"{}\" is not supported, only \"gpt2\" (byte-level BPE)",
            vocabulary.model.escape_default()
        )));
    }
    let rule = rule(vocabulary.pre).ok_or_else(|| {
        Failure::unsupported(format!(
            "GGUF pre-tokenizer \"{}\" is not supported",
            vocabulary.pre.escape_default()
        ))
    })?;
    check(vocabulary)?;

    let mut library = Library::new(model(vocabulary, rule.ignore_merges)?);
    library.with_pre_tokenizer(Some(pre_tokenizer(&rule)?));
    library.with_decoder(Some(ByteLevel::new(false, true, false)));

    let scheme = Scheme::ByteLevel;
    let mut entries = Vec::with_capacity(vocabulary.tokens.len());
    let mut special = Vec::with_capacity(vocabulary.tokens.len());
    let mut added = Vec::new();
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

fn model(vocabulary: &Vocabulary, ignore_merges: bool) -> Result<BPE, Failure> {
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
        .build()
        .map_err(|e| Failure::corrupt(e.to_string()))
}

fn short(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_default).collect()
}

// The pattern stands in a Split step, not in ByteLevel, because ByteLevel goes on silently with
// uncut text when the pattern runs into the engine's limits.
fn pre_tokenizer(rule: &Rule) -> Result<Sequence, Failure> {
    let split = Split::new(
        SplitPattern::Regex(rule.pattern.to_string()),
        SplitDelimiterBehavior::Isolated,
        false,
    )
    .map_err(|e| Failure::new(crate::failure::Kind::Internal, e.to_string()))?;
    let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
    if rule.single_digits_first {
        steps.push(Digits::new(true).into());
    }
    steps.push(split.into());
    steps.push(ByteLevel::new(false, true, false).into());
    Ok(Sequence::new(steps))
}
