//! The C border; text/include/drafthouse_text.h is its contract.

mod chat;
mod clock;
mod failure;
mod gguf;
mod grammar;
mod isolated;
mod memory;
mod python_json;
mod token_bytes;
mod tokenizer;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

use chat::{Input, Template};
use failure::Failure;
use grammar::{Form, Matcher, Vocabulary};
use tokenizer::Tokenizer;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    data: *const u8,
    size: usize,
}

#[repr(C)]
pub struct Text {
    data: *mut u8,
    size: usize,
}

#[repr(C)]
pub struct Ids {
    data: *mut u32,
    size: usize,
}

#[repr(C)]
pub struct GgufVocabulary {
    model: View,
    pre: View,
    tokens: *const View,
    token_count: usize,
    token_types: *const i32,
    token_type_count: usize,
    merges: *const View,
    merge_count: usize,
}

#[repr(C)]
pub struct RenderInput {
    messages: View,
    specials: View,
    options: View,
    add_generation_prompt: i32,
    now: i64,
}

impl View {
    /// Safety: `data` points to `size` bytes that outlive the result, or `size` is 0.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        slice(self.data, self.size)
    }
}

/// Safety: as View::bytes.
unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 || data.is_null() {
        return &[];
    }
    std::slice::from_raw_parts(data, size)
}

fn into_text(text: String) -> Text {
    let boxed = text.into_bytes().into_boxed_slice();
    let size = boxed.len();
    Text { data: Box::into_raw(boxed).cast(), size }
}

/// Runs `work`, gives its value to `store`, and turns failures and panics into a code and a text.
fn guarded<T>(
    error: *mut Text,
    work: impl FnOnce() -> Result<T, Failure>,
    store: impl FnOnce(T),
) -> i32 {
    static QUIET: Once = Once::new();
    // A library does not write to its host's stderr; the message goes out through `error`.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => {
            store(value);
            return 0;
        }
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::panic(&*panic),
    };
    if !error.is_null() {
        // Safety: the caller gives a valid pointer or null.
        unsafe { error.write(into_text(failure.message)) };
    }
    failure.kind as i32
}

#[no_mangle]
pub unsafe extern "C" fn dht_text_free(text: Text) {
    if !text.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(text.data, text.size)));
    }
}

#[no_mangle]
pub unsafe extern "C" fn dht_ids_free(ids: Ids) {
    if !ids.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(ids.data, ids.size)));
    }
}

#[no_mangle]
pub extern "C" fn dht_allocated_bytes() -> u64 {
    memory::held_bytes()
}

#[no_mangle]
pub unsafe extern "C" fn dht_tokenizer_from_json(
    json: View,
    out: *mut *mut Tokenizer,
    error: *mut Text,
) -> i32 {
    guarded(
        error,
        || Tokenizer::from_json(json.bytes()),
        |tokenizer| out.write(Box::into_raw(Box::new(tokenizer))),
    )
}

unsafe fn vocabulary<'a>(raw: &GgufVocabulary) -> Result<gguf::Vocabulary<'a>, Failure> {
    let text = |view: View, what: &str| {
        std::str::from_utf8(view.bytes())
            .map_err(|_| Failure::corrupt(format!("{what} is not UTF-8")))
    };
    let texts = |views: &[View], what: &str| {
        let all = views.iter().enumerate();
        all.map(|(i, view)| text(*view, &format!("{what} {i}"))).collect::<Result<Vec<_>, _>>()
    };
    Ok(gguf::Vocabulary {
        model: text(raw.model, "the tokenizer model")?,
        pre: text(raw.pre, "the pre-tokenizer")?,
        tokens: texts(slice(raw.tokens, raw.token_count), "token")?,
        types: slice(raw.token_types, raw.token_type_count),
        merges: texts(slice(raw.merges, raw.merge_count), "merge")?,
    })
}

#[no_mangle]
pub unsafe extern "C" fn dht_tokenizer_from_gguf(
    raw: *const GgufVocabulary,
    out: *mut *mut Tokenizer,
    error: *mut Text,
) -> i32 {
    guarded(
        error,
        || gguf::build(&vocabulary(&*raw)?),
        |tokenizer| out.write(Box::into_raw(Box::new(tokenizer))),
    )
}

#[no_mangle]
pub unsafe extern "C" fn dht_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

#[no_mangle]
pub unsafe extern "C" fn dht_tokenizer_encode(
    tokenizer: *const Tokenizer,
    text: View,
    add_special: i32,
    out: *mut Ids,
    error: *mut Text,
) -> i32 {
    guarded(
        error,
        || (*tokenizer).encode(text.bytes(), add_special != 0),
        |ids| {
            let boxed = ids.into_boxed_slice();
            let size = boxed.len();
            out.write(Ids { data: Box::into_raw(boxed).cast(), size });
        },
    )
}

#[no_mangle]
pub unsafe extern "C" fn dht_tokenizer_decode(
    tokenizer: *const Tokenizer,
    ids: *const u32,
    count: usize,
    skip_special: i32,
    out: *mut Text,
    error: *mut Text,
) -> i32 {
    guarded(
        error,
        || (*tokenizer).decode(slice(ids, count), skip_special != 0),
        |text| out.write(into_text(text)),
    )
}

#[no_mangle]
pub unsafe extern "C" fn dht_tokenizer_bytes(tokenizer: *const Tokenizer, id: u32) -> View {
    let bytes = (*tokenizer).bytes_of(id);
    View { data: bytes.as_ptr(), size: bytes.len() }
}

#[no_mangle]
pub unsafe extern "C" fn dht_tokenizer_is_special(tokenizer: *const Tokenizer, id: u32) -> i32 {
    i32::from((*tokenizer).is_special(id))
}

#[no_mangle]
pub unsafe extern "C" fn dht_tokenizer_size(tokenizer: *const Tokenizer) -> u32 {
    (*tokenizer).size()
}

#[no_mangle]
pub unsafe extern "C" fn dht_tokenizer_id(tokenizer: *const Tokenizer, token: View) -> i64 {
    let id = std::str::from_utf8(token.bytes())
        .ok()
        .and_then(|t| catch_unwind(AssertUnwindSafe(|| (*tokenizer).id_of(t))).ok().flatten());
    id.map_or(-1, i64::from)
}

#[no_mangle]
pub unsafe extern "C" fn dht_template_create(
    source: View,
    out: *mut *mut Template,
    error: *mut Text,
) -> i32 {
    guarded(
        error,
        || Template::create(source.bytes()),
        |template| out.write(Box::into_raw(Box::new(template))),
    )
}

#[no_mangle]
pub unsafe extern "C" fn dht_template_free(template: *mut Template) {
    if !template.is_null() {
        drop(Box::from_raw(template));
    }
}

#[no_mangle]
pub unsafe extern "C" fn dht_template_render(
    template: *const Template,
    input: *const RenderInput,
    out: *mut Text,
    error: *mut Text,
) -> i32 {
    let owned = |view: View| String::from_utf8_lossy(view.bytes()).into_owned();
    guarded(
        error,
        || {
            let input = &*input;
            (*template).render(Input {
                messages: owned(input.messages),
                specials: owned(input.specials),
                options: owned(input.options),
                add_generation_prompt: input.add_generation_prompt != 0,
                now: input.now,
            })
        },
        |text| out.write(into_text(text)),
    )
}

#[no_mangle]
pub unsafe extern "C" fn dht_vocabulary_create(
    tokenizer: *const Tokenizer,
    end_ids: *const u32,
    count: usize,
    out: *mut *mut Vocabulary,
    error: *mut Text,
) -> i32 {
    guarded(
        error,
        || Vocabulary::new(&*tokenizer, slice(end_ids, count)),
        |vocabulary| out.write(Box::into_raw(Box::new(vocabulary))),
    )
}

#[no_mangle]
pub unsafe extern "C" fn dht_vocabulary_free(vocabulary: *mut Vocabulary) {
    if !vocabulary.is_null() {
        drop(Box::from_raw(vocabulary));
    }
}

#[no_mangle]
pub unsafe extern "C" fn dht_matcher_create(
    vocabulary: *const Vocabulary,
    form: i32,
    text: View,
    out: *mut *mut Matcher,
    error: *mut Text,
) -> i32 {
    let form = match form {
        0 => Form::JsonSchema,
        1 => Form::Regex,
        _ => Form::Lark,
    };
    guarded(
        error,
        || Matcher::new(&*vocabulary, form, text.bytes()),
        |matcher| out.write(Box::into_raw(Box::new(matcher))),
    )
}

#[no_mangle]
pub unsafe extern "C" fn dht_matcher_clone(
    matcher: *const Matcher,
    out: *mut *mut Matcher,
    error: *mut Text,
) -> i32 {
    guarded(
        error,
        || Ok((*matcher).fork()),
        |fork| out.write(Box::into_raw(Box::new(fork))),
    )
}

#[no_mangle]
pub unsafe extern "C" fn dht_matcher_free(matcher: *mut Matcher) {
    if !matcher.is_null() {
        drop(Box::from_raw(matcher));
    }
}

#[no_mangle]
pub unsafe extern "C" fn dht_matcher_mask(
    matcher: *mut Matcher,
    bits: *mut u32,
    words: usize,
    error: *mut Text,
) -> i32 {
    let work = || (*matcher).mask(std::slice::from_raw_parts_mut(bits, words));
    guarded(error, work, |()| {})
}

#[no_mangle]
pub unsafe extern "C" fn dht_matcher_consume(
    matcher: *mut Matcher,
    id: u32,
    taken: *mut i32,
    error: *mut Text,
) -> i32 {
    guarded(error, || (*matcher).consume(id), |yes| taken.write(i32::from(yes)))
}

#[no_mangle]
pub unsafe extern "C" fn dht_matcher_rollback(
    matcher: *mut Matcher,
    ids: usize,
    error: *mut Text,
) -> i32 {
    guarded(error, || (*matcher).rollback(ids), |()| {})
}

#[no_mangle]
pub unsafe extern "C" fn dht_matcher_reset(matcher: *mut Matcher, error: *mut Text) -> i32 {
    guarded(error, || (*matcher).reset(), |()| {})
}
