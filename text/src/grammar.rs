//! Grammars that constrain an answer: JSON schemas, regular expressions and Lark grammars, by llguidance.

use std::sync::Arc;
use std::time::Duration;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher as Library, ParserFactory};
use serde_json::Value;

use crate::failure::Failure;
use crate::isolated::{self, Limits, Outcome};
use crate::tokenizer::Tokenizer;

const MAX_GRAMMAR: usize = 4 << 20;
const GRAMMAR_BYTES: usize = 1 << 30;
const STACK_BYTES: usize = 64 << 20;
/// That are tried to find the place of an error.
const MAX_PARTS: usize = 300;
const COMPILE_TIME: Duration = Duration::from_secs(20);
/// Between two parts of a JSON answer: enough for a line's end and the indentation of the next one, and
/// no room for a model that would write white space for ever.
const JSON_SPACE: &str = r"[\x20\x0A\x0D\x09]{1,40}";

/// The vocabulary as grammars see it. Immutable, thread-safe.
pub struct Vocabulary {
    factory: Arc<ParserFactory>,
    size: usize,
}

#[derive(Clone, Copy)]
pub enum Form {
    JsonSchema,
    Regex,
    Lark,
}

impl Vocabulary {
    /// `end_ids`: what ends an answer; allowed where the grammar is satisfied.
    pub fn new(tokenizer: &Tokenizer, end_ids: &[u32]) -> Result<Vocabulary, Failure> {
        let size = tokenizer.size();
        let mut words = (0..size)
            .map(|id| {
                let bytes = tokenizer.bytes_of(id);
                if !tokenizer.is_special(id) || bytes.is_empty() {
                    return bytes.to_vec();
                }
                // Never taken for text.
                [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat()
            })
            .collect::<Vec<_>>();
        let mut ends =
            end_ids.iter().copied().filter(|id| (*id as usize) < words.len()).collect::<Vec<_>>();
        if ends.is_empty() {
            // The library wants one; this is nobody's id.
            ends.push(size);
            words.push(b"\xff<end of answer>".to_vec());
        }
        for &end in &ends {
            let word = &mut words[end as usize];
            if word.first() != Some(&TokTrie::SPECIAL_TOKEN_MARKER) {
                word.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
            }
        }
        let info = TokRxInfo::new(words.len() as u32, ends[0]);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&ends);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&environment)
            .map_err(|e| Failure::unsupported(format!("grammars and this vocabulary: {e}")))?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Vocabulary { factory: Arc::new(factory), size: words.len() })
    }
}

/// Where an answer stands in its grammar.
pub struct Matcher {
    library: Library,
    size: usize,
}

impl Matcher {
    pub fn new(vocabulary: &Vocabulary, form: Form, text: &[u8]) -> Result<Matcher, Failure> {
        if text.len() > MAX_GRAMMAR {
            return Err(Failure::invalid(format!("it is larger than {} MiB", MAX_GRAMMAR >> 20)));
        }
        let text = std::str::from_utf8(text)
            .map_err(|e| Failure::invalid(format!("it is not UTF-8: {e}")))?
            .to_string();
        let factory = Arc::clone(&vocabulary.factory);
        let limits =
            Limits { bytes: GRAMMAR_BYTES, stack_bytes: STACK_BYTES, time: COMPILE_TIME };
        let library = match isolated::run(&limits, move || compile(&factory, form, text))? {
            Outcome::Done(library) => library,
            Outcome::RanAway(why) => return Err(Failure::invalid(format!("not compiled: {why}"))),
        };
        Ok(Matcher { library, size: vocabulary.size })
    }

    /// One bit per id that may come next, lowest first; `bits` may be longer or shorter.
    pub fn mask(&mut self, bits: &mut [u32]) -> Result<(), Failure> {
        let mask = self.library.compute_mask_or_eos().map_err(lost)?;
        bits.fill(0);
        for (to, from) in bits.iter_mut().zip(mask.as_slice()) {
            *to = *from;
        }
        let words = self.size / 32;
        if let Some(last) = bits.get_mut(words) {
            *last &= (1u32 << (self.size % 32)) - 1;
        }
        bits.iter_mut().skip(words + 1).for_each(|word| *word = 0);
        Ok(())
    }

    /// Whether the id could come next; then it has.
    pub fn consume(&mut self, id: u32) -> Result<bool, Failure> {
        if self.library.is_stopped() && !self.library.is_error() {
            return Ok(false);
        }
        Ok(self.library.try_consume_tokens(&[id]).map_err(lost)? == 1)
    }

    pub fn rollback(&mut self, ids: usize) -> Result<(), Failure> {
        self.library.rollback(ids).map_err(lost)
    }

    pub fn reset(&mut self) -> Result<(), Failure> {
        self.library.reset().map_err(lost)
    }

    /// Another one at the same place, with lexer states (and so limits) of its own.
    pub fn fork(&self) -> Matcher {
        Matcher { library: self.library.deep_clone(), size: self.size }
    }
}

fn lost(error: impl std::fmt::Display) -> Failure {
    Failure::invalid(format!("the grammar cannot go on: {}", in_words(&error.to_string())))
}

/// An error of the library without what it says to its own developers.
fn in_words(error: &str) -> String {
    let error = error.replace("<non-verbose/>", "");
    if error.contains("NoExtensionBias") {
        return "no text can match it: a part of it allows nothing, or refers to itself without an end"
            .into();
    }
    error.trim().into()
}

fn compile(factory: &ParserFactory, form: Form, text: String) -> Result<Library, Failure> {
    let grammar = match form {
        Form::JsonSchema => {
            let schema: Value = serde_json::from_str(&text)
                .map_err(|e| Failure::invalid(format!("not JSON: {e}")))?;
            if let Some(error) = error_of(factory, &schema) {
                let place = place_of(factory, &schema, &error);
                return Err(Failure::invalid(format!("at {place}: {}", in_words(&error))));
            }
            TopLevelGrammar::from_json_schema(with_bounded_space(schema))
        }
        Form::Regex => {
            // The library would leave it out.
            let backslashes = text.bytes().rev().take_while(|b| *b == b'\\').count();
            if backslashes % 2 == 1 {
                return Err(Failure::invalid(
                    "it ends in a backslash with nothing behind it; write \\\\ for the character",
                ));
            }
            TopLevelGrammar::from_regex(&text)
        }
        Form::Lark => TopLevelGrammar::from_lark(text),
    };
    let mut library = Library::new(factory.create_parser(grammar));
    if let Some(error) = library.get_error() {
        if let Form::Regex = form {
            return Err(Failure::invalid(in_words(of_regex(&error))));
        }
        return Err(Failure::invalid(in_words(&error)));
    }
    // Limits that show with the first mask only show here.
    library.compute_mask().map_err(|e| Failure::invalid(in_words(&e.to_string())))?;
    Ok(library)
}

/// Why a regular expression is none, without the grammar that it was put into.
fn of_regex(error: &str) -> &str {
    error.lines().find_map(|line| line.trim().strip_prefix("error: ")).unwrap_or(error)
}

/// The schema, unless it says itself what white space its answers hold.
fn with_bounded_space(schema: Value) -> Value {
    let mut object = match schema {
        Value::Object(object) => object,
        Value::Bool(true) => serde_json::Map::new(),
        other => return other,
    };
    let options = object.entry("x-guidance").or_insert_with(|| Value::Object(Default::default()));
    if let Value::Object(options) = options {
        if !options.contains_key("whitespace_flexible") {
            options.entry("whitespace_pattern").or_insert_with(|| JSON_SPACE.into());
        }
    }
    Value::Object(object)
}

fn error_of(factory: &ParserFactory, schema: &Value) -> Option<String> {
    let grammar = TopLevelGrammar::from_json_schema(schema.clone());
    Library::new(factory.create_parser(grammar)).get_error()
}

/// The innermost part of a schema that gives this error by itself, as a JSON pointer.
fn place_of(factory: &ParserFactory, schema: &Value, error: &str) -> String {
    let mut place = "#".to_string();
    let mut part = schema;
    let mut tries = 0;
    'inner: loop {
        for (name, inner) in parts_of(part) {
            tries += 1;
            if tries > MAX_PARTS {
                return place;
            }
            if error_of(factory, inner).as_deref() == Some(error) {
                place += &name;
                part = inner;
                continue 'inner;
            }
        }
        return place;
    }
}

/// The schemas that stand in a schema, with their pointers from there.
fn parts_of(schema: &Value) -> Vec<(String, &Value)> {
    let mut parts = Vec::new();
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    for (key, value) in schema.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(all)) => {
                parts.extend(all.iter().map(|(k, v)| (format!("/{key}/{}", escaped(k)), v)));
            }
            (_, Value::Array(all)) if all.iter().all(Value::is_object) => {
                parts.extend(all.iter().enumerate().map(|(i, v)| (format!("/{key}/{i}"), v)));
            }
            (_, Value::Object(_)) => parts.push((format!("/{}", escaped(key)), value)),
            _ => {}
        }
    }
    parts
}
