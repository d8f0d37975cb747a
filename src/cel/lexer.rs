//! Text to tokens.

use super::{
    ast::{Offset, Span},
    error::Flaw,
};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token<'t> {
    Ident(&'t str),
    /// Digits with or without `0x`, without a sign: only the parser knows whether one belongs to them.
    Int(&'t str),
    Uint(&'t str),
    Double(&'t str),
    String(String),
    Bytes(Vec<u8>),
    Symbol(&'static str),
    End,
}

impl Token<'_> {
    /// As a message shows it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Ident(text) | Self::Int(text) | Self::Double(text) | Self::Symbol(text) => {
                (*text).to_owned()
            }
            Self::Uint(text) => format!("{text}u"),
            Self::String(_) => "a string".to_owned(),
            Self::Bytes(_) => "bytes".to_owned(),
            Self::End => "<EOF>".to_owned(),
        }
    }
}

/// Longer ones first.
const SYMBOLS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*",
    "/", "%", "<", ">",
];

/// All tokens of a text, the last of which is its end.
pub(super) fn tokens(text: &str) -> Result<Vec<(Span, Token<'_>)>, Flaw> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank();
        let start = lexer.at;
        let token = lexer.token()?;
        let is_end = token == Token::End;
        tokens.push((start..lexer.at, token));
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    at: Offset,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn take(&mut self, prefix: &str) -> bool {
        let is_there = self.rest().starts_with(prefix);
        if is_there {
            self.at += prefix.len();
        }
        is_there
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let length = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn skip_blank(&mut self) {
        loop {
            self.take_while(|c| matches!(c, ' ' | '\t' | '\r' | '\n' | '\u{c}'));
            if !self.rest().starts_with("//") {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    fn token(&mut self) -> Result<Token<'t>, Flaw> {
        let start = self.at;
        let Some(first) = self.peek() else { return Ok(Token::End) };
        if let Some(prefix) = self.string_prefix() {
            return self.string(prefix);
        }
        if first.is_ascii_digit() || (first == '.' && self.second().is_some_and(|c| c.is_ascii_digit())) {
            return Ok(self.number());
        }
        if first.is_ascii_alphabetic() || first == '_' {
            return Ok(Token::Ident(self.take_while(|c| c.is_ascii_alphanumeric() || c == '_')));
        }
        match SYMBOLS.iter().find(|symbol| self.rest().starts_with(**symbol)) {
            Some(symbol) => {
                self.at += symbol.len();
                Ok(Token::Symbol(symbol))
            }
            None => Err(Flaw::syntax(start, format!("token recognition error at: '{first}'"))),
        }
    }

    fn second(&self) -> Option<char> {
        self.rest().chars().nth(1)
    }

    fn number(&mut self) -> Token<'t> {
        let start = self.at;
        if self.take("0x") || self.take("0X") {
            self.take_while(|c| c.is_ascii_hexdigit());
            return self.whole(start);
        }
        self.take_while(|c| c.is_ascii_digit());
        let mut is_double = false;
        if self.peek() == Some('.') && self.second().is_some_and(|c| c.is_ascii_digit()) {
            is_double = true;
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        let before_exponent = self.at;
        if self.take("e") || self.take("E") {
            let _sign = self.take("+") || self.take("-");
            if self.take_while(|c| c.is_ascii_digit()).is_empty() {
                self.at = before_exponent;
            } else {
                is_double = true;
            }
        }
        if is_double { Token::Double(&self.text[start..self.at]) } else { self.whole(start) }
    }

    fn whole(&mut self, start: Offset) -> Token<'t> {
        let digits = &self.text[start..self.at];
        if self.take("u") || self.take("U") { Token::Uint(digits) } else { Token::Int(digits) }
    }

    /// Takes what stands in front of a quote, if a string begins here.
    fn string_prefix(&mut self) -> Option<Prefix> {
        let quote = self.rest().find(['"', '\'']).filter(|at| *at <= 2)?;
        let mut prefix = Prefix { is_raw: false, is_bytes: false };
        for (place, letter) in self.rest()[..quote].chars().enumerate() {
            match letter {
                'r' | 'R' if !prefix.is_raw => prefix.is_raw = true,
                'b' | 'B' if place == 0 => prefix.is_bytes = true,
                _ => return None,
            }
        }
        self.at += quote;
        Some(prefix)
    }

    fn string(&mut self, prefix: Prefix) -> Result<Token<'t>, Flaw> {
        let start = self.at;
        let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| self.take(quote)).unwrap_or("\"");
        let is_long = quote.len() == 3;
        let mut content = Content::new(prefix.is_bytes);
        loop {
            if self.take(quote) {
                return Ok(content.token());
            }
            let at = self.at;
            match self.next() {
                None => return Err(Flaw::syntax(start, "the string does not end")),
                Some('\n' | '\r') if !is_long => {
                    return Err(Flaw::syntax(start, "the string does not end on its line"));
                }
                Some('\r') => {
                    let _newline = self.take("\n");
                    content.push('\n');
                }
                Some('\\') if prefix.is_raw => {
                    content.push('\\');
                    // A quote behind it does not end a raw string, and both stay.
                    if let Some(next) = self.next() {
                        content.push(next);
                    }
                }
                Some('\\') => self.escape(at, prefix, &mut content)?,
                Some(other) => content.push(other),
            }
        }
    }

    fn escape(&mut self, at: Offset, prefix: Prefix, content: &mut Content) -> Result<(), Flaw> {
        let invalid = || Flaw::syntax(at, "invalid escape sequence in a string");
        let letter = self.next().ok_or_else(invalid)?;
        let plain = match letter {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '\\' | '\'' | '"' | '`' | '?' => letter,
            'x' | 'X' => return content.push_code(self.code(2, 16).ok_or_else(invalid)?).ok_or_else(invalid),
            'u' | 'U' if !prefix.is_bytes => {
                let digits = if letter == 'u' { 4 } else { 8 };
                let code = self.code(digits, 16).and_then(char::from_u32).ok_or_else(invalid)?;
                content.push(code);
                return Ok(());
            }
            '0'..='3' => {
                self.at -= 1;
                return content.push_code(self.code(3, 8).ok_or_else(invalid)?).ok_or_else(invalid);
            }
            _ => return Err(invalid()),
        };
        content.push(plain);
        Ok(())
    }

    fn code(&mut self, digits: usize, radix: u32) -> Option<u32> {
        let text = self.rest().get(..digits)?;
        if !text.chars().all(|c| c.is_digit(radix)) {
            return None;
        }
        self.at += digits;
        u32::from_str_radix(text, radix).ok()
    }
}

#[derive(Debug, Clone, Copy)]
struct Prefix {
    is_raw: bool,
    is_bytes: bool,
}

/// What a literal holds so far.
enum Content {
    Text(String),
    Bytes(Vec<u8>),
}

impl Content {
    fn new(is_bytes: bool) -> Self {
        if is_bytes { Self::Bytes(Vec::new()) } else { Self::Text(String::new()) }
    }

    fn push(&mut self, c: char) {
        match self {
            Self::Text(text) => text.push(c),
            Self::Bytes(bytes) => bytes.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }

    /// A number is a character of a text, but a byte of bytes.
    fn push_code(&mut self, code: u32) -> Option<()> {
        match self {
            Self::Text(text) => text.push(char::from_u32(code)?),
            Self::Bytes(bytes) => bytes.push(u8::try_from(code).ok()?),
        }
        Some(())
    }

    fn token<'t>(self) -> Token<'t> {
        match self {
            Self::Text(text) => Token::String(text),
            Self::Bytes(bytes) => Token::Bytes(bytes),
        }
    }
}
