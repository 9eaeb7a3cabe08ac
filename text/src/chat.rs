//! Chat templates: Jinja from untrusted files, rendered as transformers renders them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Serde, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value};

use crate::clock;
use crate::failure::Failure;
use crate::isolated::{self, Limits, Outcome};
use crate::python_json;

const MAX_SOURCE: usize = 1 << 20;
const MAX_INPUT: usize = 32 << 20;
const MAX_OUTPUT: usize = 64 << 20;
/// One fuel pays for an instruction or for 64 bytes of new data; a template may also touch what it
/// is given several times.
const BASE_FUEL: u64 = 500_000;
const INPUT_BYTES_PER_FUEL: u64 = 4;
const MAX_FUEL: u64 = 4_000_000;
/// Values that a template nests are compared, printed and freed recursively. Each level costs at
/// least five fuel to make and about 500 bytes to walk.
const STACK_BYTES_PER_FUEL: usize = 512;
const RECURSION: usize = 200;
/// Fuel counts most of what a template makes, but not all: text of nested lists that repeat
/// themselves, padded formats. Every byte of input is held several times, as JSON and as values.
const BASE_BYTES: usize = 64 << 20;
const BYTES_PER_INPUT_BYTE: usize = 32;
const COMPILED_BYTES: usize = 256 * MAX_SOURCE;
const BASE_TIME: Duration = Duration::from_secs(1);
const TIME_PER_MIB: Duration = Duration::from_secs(1);
const NAME: &str = "chat";

pub struct Template {
    shared: Arc<Shared>,
}

struct Shared {
    environment: Environment<'static>,
    ran_away: AtomicBool,
}

pub struct Input {
    pub messages: String,
    pub specials: String,
    pub options: String,
    pub add_generation_prompt: bool,
    pub now: i64,
}

impl Template {
    pub fn create(source: &[u8]) -> Result<Template, Failure> {
        if source.len() > MAX_SOURCE {
            return Err(Failure::corrupt(format!("larger than {} MiB", MAX_SOURCE >> 20)));
        }
        let source = String::from_utf8_lossy(source);
        let source = without_generation_tags(&source);
        let compile = move || {
            let mut environment = environment().map_err(|e| Failure::corrupt(describe(&e)))?;
            environment
                .add_template_owned(NAME, source)
                .map_err(|e| Failure::corrupt(describe(&e)))?;
            Ok(environment)
        };
        let limits = Limits {
            bytes: BASE_BYTES + COMPILED_BYTES,
            stack_bytes: BASE_FUEL as usize * STACK_BYTES_PER_FUEL,
            time: BASE_TIME,
        };
        let environment = match isolated::run(&limits, compile)? {
            Outcome::Done(environment) => environment,
            Outcome::RanAway(why) => return Err(Failure::corrupt(format!("not compiled: {why}"))),
        };
        Ok(Template { shared: Arc::new(Shared { environment, ran_away: AtomicBool::new(false) }) })
    }

    pub fn render(&self, input: Input) -> Result<String, Failure> {
        let size = input.messages.len() + input.options.len();
        if size > MAX_INPUT {
            return Err(Failure::invalid(format!(
                "the messages are larger than {} MiB",
                MAX_INPUT >> 20
            )));
        }
        if self.shared.ran_away.load(Ordering::Relaxed) {
            return Err(Failure::corrupt("not rendered: it went beyond its limits before"));
        }
        let shared = Arc::clone(&self.shared);
        let fuel = (BASE_FUEL + size as u64 / INPUT_BYTES_PER_FUEL).min(MAX_FUEL);
        let limits = Limits {
            bytes: BASE_BYTES + BYTES_PER_INPUT_BYTE * size,
            stack_bytes: fuel as usize * STACK_BYTES_PER_FUEL,
            time: BASE_TIME + TIME_PER_MIB * (size >> 20) as u32,
        };
        match isolated::run(&limits, move || shared.render(input, fuel))? {
            Outcome::Done(text) => Ok(text),
            Outcome::RanAway(why) => {
                self.shared.ran_away.store(true, Ordering::Relaxed);
                Err(Failure::corrupt(format!("not rendered: {why}")))
            }
        }
    }
}

impl Shared {
    fn render(&self, input: Input, fuel: u64) -> Result<String, Failure> {
        let mut context = serde_json::Map::new();
        // transformers passes these as None, and templates ask "is not none".
        context.insert("tools".into(), serde_json::Value::Null);
        context.insert("documents".into(), serde_json::Value::Null);
        for (what, text) in [("special tokens", &input.specials), ("options", &input.options)] {
            if !text.trim().is_empty() {
                let more: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text)
                    .map_err(|e| {
                    Failure::invalid(format!("{what} are not a JSON object: {e}"))
                })?;
                context.extend(more);
            }
        }
        let messages: serde_json::Value = serde_json::from_str(&input.messages)
            .map_err(|e| Failure::invalid(format!("the messages are not JSON: {e}")))?;
        context.insert("messages".into(), messages);
        context.insert("add_generation_prompt".into(), input.add_generation_prompt.into());
        let context = Value::from(Serde(serde_json::Value::Object(context)));

        let mut environment = self.environment.clone();
        environment.set_fuel(Some(fuel));
        let now = input.now;
        environment.add_function("strftime_now", move |format: String| {
            clock::format_local(now, &format)
                .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "strftime_now: bad format"))
        });
        let template = environment.get_template(NAME).map_err(|e| failure(&e))?;
        let text = template.render(context).map_err(|e| failure(&e))?;
        if text.len() > MAX_OUTPUT {
            return Err(Failure::corrupt(format!(
                "the template wrote more than {} MiB",
                MAX_OUTPUT >> 20
            )));
        }
        Ok(text)
    }
}

fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_recursion_limit(RECURSION);
    environment.set_fuel(Some(BASE_FUEL));
    environment.set_debug(false);
    environment.add_filter("tojson", python_json::filter);
    environment.add_test("sequence", is_sequence);
    environment.add_function("raise_exception", raise_exception);
    environment.set_unknown_method_callback(method);
    Ok(environment)
}

/// Python's strings and mappings have a length and items, and Jinja asks for nothing else.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined
    )
}

const RAISED: &str = "raise_exception: ";

fn raise_exception(message: Option<String>, _: Rest<Value>, _: Kwargs) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{}", message.unwrap_or_default())))
}

/// Methods of Python's str that the engine's own Python layer lacks.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let (Some(text), [argument]) = (value.as_str(), args) {
        if let Some(argument) = argument.as_str() {
            match name {
                "removeprefix" => {
                    return Ok(Value::from(text.strip_prefix(argument).unwrap_or(text)))
                }
                "removesuffix" => {
                    return Ok(Value::from(text.strip_suffix(argument).unwrap_or(text)))
                }
                "partition" => {
                    return Ok(match text.split_once(argument) {
                        Some((left, right)) => three(left, argument, right),
                        None => three(text, "", ""),
                    })
                }
                "rpartition" => {
                    return Ok(match text.rsplit_once(argument) {
                        Some((left, right)) => three(left, argument, right),
                        None => three("", "", text),
                    })
                }
                _ => {}
            }
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

fn three(left: &str, middle: &str, right: &str) -> Value {
    Value::from((left.to_string(), middle.to_string(), right.to_string()))
}

/// `{% generation %}` marks what a trainer learns from; its body renders as it is.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let inside = &tag[2..end];
        let word = inside.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        match word {
            "generation" => out.push_str(&format!("{{%{}%}}", inside.replace(word, "if true"))),
            "endgeneration" => out.push_str(&format!("{{%{}%}}", inside.replace(word, "endif"))),
            _ => {
                // Only the opening is taken: "%}" may stand in a string inside the tag.
                out.push_str("{%");
                rest = &tag[2..];
                continue;
            }
        }
        rest = &tag[end + 2..];
    }
    out.push_str(rest);
    out
}

fn failure(error: &Error) -> Failure {
    let mut innermost = error;
    let mut source = std::error::Error::source(error);
    while let Some(next) = source.and_then(|s| s.downcast_ref::<Error>()) {
        innermost = next;
        source = std::error::Error::source(next);
    }
    if let Some(message) = innermost.detail().and_then(|d| d.strip_prefix(RAISED)) {
        return Failure::invalid(format!("the chat template refuses the messages: {message}"));
    }
    match innermost.kind() {
        ErrorKind::OutOfFuel => Failure::corrupt("the template needs too much work or memory"),
        ErrorKind::UnknownFilter
        | ErrorKind::UnknownTest
        | ErrorKind::UnknownFunction
        | ErrorKind::UnknownMethod => Failure::unsupported(describe(innermost)),
        _ => Failure::corrupt(describe(innermost)),
    }
}

/// One line.
fn describe(error: &Error) -> String {
    let mut text = error.kind().to_string();
    if let Some(detail) = error.detail() {
        text.push_str(": ");
        text.extend(detail.chars().take(300));
    }
    if let Some(line) = error.line() {
        text.push_str(&format!(" (line {line} of the template)"));
    }
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_tags_keep_their_whitespace_control() {
        assert_eq!(
            without_generation_tags("a{%- generation -%}b{% endgeneration %}c{% if x == '%}' %}"),
            "a{%- if true -%}b{% endif %}c{% if x == '%}' %}"
        );
        assert_eq!(without_generation_tags("{% open"), "{% open");
    }
}
