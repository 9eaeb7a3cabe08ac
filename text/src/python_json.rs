//! `tojson` as transformers defines it: json.dumps(x, ensure_ascii=False), which neither escapes
//! HTML nor sorts keys. Prompts are compared byte by byte, so the layout matters.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Deeper values cannot come from a request: the JSON parser stops at 128.
const MAX_DEPTH: usize = 256;
const MAX_INDENT: usize = 16;
/// Bytes between two charges, so that a small value that repeats itself cannot grow unnoticed.
const CHARGE_EVERY: usize = 4096;

pub fn filter(
    state: &State,
    value: &Value,
    indent: Option<Value>,
    args: Kwargs,
) -> Result<Value, Error> {
    let _: Option<bool> = args.get("ensure_ascii")?;
    let sort_keys: Option<bool> = args.get("sort_keys")?;
    let separators: Option<Vec<String>> = args.get("separators")?;
    let indent = match indent {
        Some(indent) => Some(indent),
        None => args.get::<Option<Value>>("indent")?,
    };
    args.assert_all_used()?;
    let indent = match indent {
        Some(width) if !width.is_none() && !width.is_undefined() => {
            Some(usize::try_from(width)?.min(MAX_INDENT))
        }
        _ => None,
    };
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "separators are a pair")),
        None => (if indent.is_some() { "," } else { ", " }.into(), ": ".into()),
    };
    let mut writer = Writer {
        state,
        out: String::new(),
        charged: 0,
        indent,
        item,
        key,
        sort_keys: sort_keys.unwrap_or(false),
    };
    writer.value(value, 0)?;
    Ok(Value::from_safe_string(writer.out))
}

struct Writer<'a, 'env, 'state> {
    state: &'a State<'env, 'state>,
    out: String,
    charged: usize,
    indent: Option<usize>,
    item: String,
    key: String,
    sort_keys: bool,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: nested too deeply"));
        }
        if self.out.len() - self.charged >= CHARGE_EVERY {
            self.state.consume_fuel(((self.out.len() - self.charged) / 16) as u64)?;
            self.charged = self.out.len();
        }
        match value.kind() {
            ValueKind::None | ValueKind::Undefined => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Map => self.map(value, depth)?,
            ValueKind::Seq | ValueKind::Iterable => self.sequence(value, depth)?,
            other => {
                return Err(Error::new(
                    ErrorKind::BadSerialization,
                    format!("a value of type {other} is not JSON serializable"),
                ))
            }
        }
        Ok(())
    }

    fn sequence(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for element in value.try_iter()? {
            self.before_element(empty, depth + 1);
            empty = false;
            self.value(&element, depth + 1)?;
        }
        self.after_elements(empty, depth);
        self.out.push(']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        self.out.push('{');
        for (i, key) in keys.iter().enumerate() {
            self.before_element(i == 0, depth + 1);
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default()),
                ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                    self.out.push('"');
                    self.value(key, depth + 1)?;
                    self.out.push('"');
                }
                _ => return Err(Error::new(ErrorKind::BadSerialization, "keys must be strings")),
            }
            let separator = self.key.clone();
            self.out.push_str(&separator);
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        self.after_elements(keys.is_empty(), depth);
        self.out.push('}');
        Ok(())
    }

    fn before_element(&mut self, first: bool, depth: usize) {
        if !first {
            let separator = self.item.clone();
            self.out.push_str(&separator);
        }
        self.new_line(depth);
    }

    fn after_elements(&mut self, empty: bool, depth: usize) {
        if !empty {
            self.new_line(depth);
        }
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(width) = self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', width * depth));
        }
    }

    fn number(&mut self, value: &Value) {
        if value.is_integer() {
            self.out.push_str(&value.to_string());
        } else {
            let number = f64::try_from(value.clone()).unwrap_or(f64::NAN);
            self.out.push_str(&python_float(number));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' => self.out.push_str(&format!("\\u{:04x}", c as u32)),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// Python's repr: the shortest digits that round-trip, an exponent below 1e-4 and from 1e16.
fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(rest) => ('-', rest),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{number:?}")
}

#[cfg(test)]
mod tests {
    use super::python_float;

    #[test]
    fn floats_look_like_python() {
        for (number, text) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e16, "1e+16"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (1e15, "1000000000000000.0"),
            (1e100, "1e+100"),
        ] {
            assert_eq!(python_float(number), text);
        }
    }
}
