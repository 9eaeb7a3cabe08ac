//! Errors as the C border knows them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Invalid = 1,
    Corrupt = 2,
    Unsupported = 3,
    Internal = 4,
}

#[derive(Debug)]
pub struct Failure {
    pub kind: Kind,
    pub message: String,
}

impl Failure {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Failure { kind, message: message.into() }
    }
    pub fn panic(payload: &(dyn std::any::Any + Send)) -> Self {
        let reason = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("unknown");
        Self::new(Kind::Internal, format!("panic: {}", reason.replace('\n', " ")))
    }
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(Kind::Corrupt, message)
    }
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(Kind::Unsupported, message)
    }
}
