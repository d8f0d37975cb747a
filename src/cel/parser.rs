//! Tokens to an expression.

use super::{
    ast::{Element, Entry, Expr, Kind, Literal, Offset, SelectMode, Span},
    error::Flaw,
    lexer::{self, Token},
    macros,
};

/// How deep brackets may be nested: what parses them calls itself.
const MAX_NESTING: usize = 64;

/// How many levels an expression may have: what checks, plans and evaluates it calls itself.
const MAX_DEPTH: u16 = 250;

/// How many expressions one may be made of, after macros are expanded.
const MAX_SIZE: u32 = 100_000;

/// Words that are no names.
const RESERVED: [&str; 20] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
];

/// The operators with two operands, weakest first.
const OPERATORS: [&[(&str, &str)]; 3] = [
    &[
        ("<", "_<_"),
        ("<=", "_<=_"),
        (">", "_>_"),
        (">=", "_>=_"),
        ("==", "_==_"),
        ("!=", "_!=_"),
        ("in", "@in"),
    ],
    &[("+", "_+_"), ("-", "_-_")],
    &[("*", "_*_"), ("/", "_/_"), ("%", "_%_")],
];

/// Parses a whole text.
pub(super) fn parse(text: &str) -> Result<Expr, Flaw> {
    let mut parser = Parser { tokens: lexer::tokens(text)?, next: 0, nesting: 0 };
    let expression = parser.expression()?;
    match parser.peek() {
        Token::End => Ok(expression),
        _ => Err(parser.unexpected("<EOF>")),
    }
}

struct Parser<'t> {
    /// The last one is the end, and is never passed.
    tokens: Vec<(Span, Token<'t>)>,
    next: usize,
    nesting: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> &Token<'t> {
        &self.tokens[self.next].1
    }

    fn second(&self) -> Option<&Token<'t>> {
        self.tokens.get(self.next + 1).map(|(_, token)| token)
    }

    fn at(&self) -> Offset {
        self.tokens[self.next].0.start
    }

    /// From where something began to what was passed last.
    fn since(&self, start: Offset) -> Span {
        let end = self.next.checked_sub(1).map_or(start, |last| self.tokens[last].0.end);
        start..end.max(start)
    }

    fn advance(&mut self) -> Token<'t> {
        let token = self.peek().clone();
        if token != Token::End {
            self.next += 1;
        }
        token
    }

    fn is_next(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(next) if *next == symbol)
    }

    fn take(&mut self, symbol: &str) -> Option<Offset> {
        let at = self.at();
        self.is_next(symbol).then(|| {
            self.advance();
            at
        })
    }

    fn expect(&mut self, symbol: &str) -> Result<Offset, Flaw> {
        self.take(symbol).ok_or_else(|| self.unexpected(&format!("'{symbol}'")))
    }

    fn unexpected(&self, expected: &str) -> Flaw {
        let found = self.peek().shown();
        Flaw::syntax(self.at(), format!("mismatched input '{found}' expecting {expected}"))
    }

    /// Refuses what could exhaust the stack later.
    fn built(expression: Expr) -> Result<Expr, Flaw> {
        if expression.depth() > MAX_DEPTH {
            return Err(Flaw::new(
                expression.at,
                format!("expression recursion limit exceeded: {MAX_DEPTH}"),
            ));
        }
        if expression.size() > MAX_SIZE {
            return Err(Flaw::new(expression.at, format!("expression size limit exceeded: {MAX_SIZE}")));
        }
        Ok(expression)
    }

    fn expression(&mut self) -> Result<Expr, Flaw> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            let message = format!("expression recursion limit exceeded: {MAX_NESTING}");
            return Err(Flaw::new(self.at(), message));
        }
        let start = self.at();
        let condition =
            self.logical("||", "_||_", |parser| parser.logical("&&", "_&&_", |parser| parser.operators(0)))?;
        let expression = match self.take("?") {
            None => condition,
            Some(at) => {
                let truthy = self.logical("||", "_||_", |p| p.logical("&&", "_&&_", |p| p.operators(0)))?;
                self.expect(":")?;
                let falsy = self.expression()?;
                let choice = Expr::call(at, "_?_:_", vec![condition, truthy, falsy]);
                Self::built(choice.spanning(self.since(start)))?
            }
        };
        self.nesting -= 1;
        Ok(expression)
    }

    fn logical(
        &mut self,
        symbol: &str,
        function: &str,
        operand: impl Fn(&mut Self) -> Result<Expr, Flaw>,
    ) -> Result<Expr, Flaw> {
        let start = self.at();
        let first = operand(self)?;
        if !self.is_next(symbol) {
            return Ok(first);
        }
        let at = self.at();
        let mut terms = vec![first];
        while self.take(symbol).is_some() {
            terms.push(operand(self)?);
        }
        Self::built(Expr::call(at, function, terms).spanning(self.since(start)))
    }

    fn operators(&mut self, level: usize) -> Result<Expr, Flaw> {
        let Some(operators) = OPERATORS.get(level) else { return self.unary() };
        let start = self.at();
        let mut left = self.operators(level + 1)?;
        loop {
            let next = match self.peek() {
                Token::Symbol(symbol) => *symbol,
                Token::Ident("in") => "in",
                _ => return Ok(left),
            };
            let Some((_, function)) = operators.iter().find(|(symbol, _)| *symbol == next) else {
                return Ok(left);
            };
            let at = self.at();
            self.advance();
            let right = self.operators(level + 1)?;
            left = Self::built(Expr::call(at, function, vec![left, right]).spanning(self.since(start)))?;
        }
    }

    fn unary(&mut self) -> Result<Expr, Flaw> {
        let is_number = matches!(self.second(), Some(Token::Int(_) | Token::Double(_)));
        let (symbol, function) = match self.peek() {
            Token::Symbol("!") => ("!", "!_"),
            Token::Symbol("-") if !is_number => ("-", "-_"),
            _ => return self.member(),
        };
        let at = self.at();
        let mut times = 0_usize;
        while self.take(symbol).is_some() {
            times += 1;
        }
        let operand = self.member()?;
        // Two of them are none.
        if times.is_multiple_of(2) {
            Ok(operand)
        } else {
            Self::built(Expr::call(at, function, vec![operand]).spanning(self.since(at)))
        }
    }

    fn member(&mut self) -> Result<Expr, Flaw> {
        let start = self.at();
        let mut operand = self.primary()?;
        // What is in brackets has its own.
        if operand.span.is_empty() {
            operand.span = self.since(start);
        }
        loop {
            let at = self.at();
            operand = if self.take(".").is_some() {
                self.selection(at, operand)?
            } else if self.take("[").is_some() {
                let function = if self.take("?").is_some() { "_[?_]" } else { "_[_]" };
                let index = self.expression()?;
                self.expect("]")?;
                Expr::call(at, function, vec![operand, index])
            } else {
                return Ok(operand);
            };
            operand = Self::built(operand.spanning(self.since(start)))?;
        }
    }

    fn selection(&mut self, at: Offset, operand: Expr) -> Result<Expr, Flaw> {
        let mode = if self.take("?").is_some() { SelectMode::Optional } else { SelectMode::Value };
        let Token::Ident(name) = *self.peek() else { return Err(self.unexpected("IDENTIFIER")) };
        if matches!(name, "in" | "true" | "false" | "null") {
            return Err(self.unexpected("IDENTIFIER"));
        }
        self.advance();
        let call_at = self.at();
        if mode == SelectMode::Optional || self.take("(").is_none() {
            return Ok(Expr::select(at, operand, name.to_owned(), mode));
        }
        let args = self.arguments()?;
        macros::member(call_at, name, operand, args)
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, Flaw> {
        let mut args = Vec::new();
        if self.take(")").is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expression()?);
            if self.take(",").is_none() {
                self.expect(")")?;
                return Ok(args);
            }
        }
    }

    fn primary(&mut self) -> Result<Expr, Flaw> {
        let at = self.at();
        let literal = match self.peek().clone() {
            Token::Ident("true") => Literal::Bool(true),
            Token::Ident("false") => Literal::Bool(false),
            Token::Ident("null") => Literal::Null,
            Token::Ident(name) => return self.name(at, name),
            Token::Symbol("-") => {
                self.advance();
                Self::number(at, self.peek(), true)?
            }
            Token::String(text) => Literal::String(text),
            Token::Bytes(bytes) => Literal::Bytes(bytes),
            Token::Symbol(symbol) => return self.bracket(at, symbol),
            Token::End => return Err(self.unexpected("an expression")),
            number => Self::number(at, &number, false)?,
        };
        self.advance();
        Ok(Expr::literal(at, literal))
    }

    fn bracket(&mut self, at: Offset, symbol: &str) -> Result<Expr, Flaw> {
        if !matches!(symbol, "(" | "[" | "{" | ".") {
            return Err(self.unexpected("an expression"));
        }
        self.advance();
        match symbol {
            "(" => {
                let expression = self.expression()?;
                self.expect(")")?;
                Ok(expression)
            }
            "[" => self.list(at),
            "{" => self.map(at),
            // A leading dot names the outermost scope, and there is only one.
            _ => match *self.peek() {
                Token::Ident(name) => self.name(at, name),
                _ => Err(self.unexpected("IDENTIFIER")),
            },
        }
    }

    fn name(&mut self, at: Offset, name: &str) -> Result<Expr, Flaw> {
        if RESERVED.contains(&name) {
            return Err(Flaw::syntax(at, format!("reserved identifier: {name}")));
        }
        self.advance();
        let call_at = self.at();
        if self.take("(").is_some() {
            let args = self.arguments()?;
            return macros::global(call_at, name, args);
        }
        match self.message_name(name) {
            Some(message) => self.message(message),
            None => Ok(Expr::ident(at, name)),
        }
    }

    /// The name of a message, if one is made here: names with dots, and then a brace.
    fn message_name(&mut self, first: &str) -> Option<String> {
        let mut name = first.to_owned();
        let mut next = self.next;
        loop {
            match (&self.tokens.get(next)?.1, self.tokens.get(next + 1).map(|(_, token)| token)) {
                (Token::Symbol("{"), _) => {
                    self.next = next + 1;
                    return Some(name);
                }
                (Token::Symbol("."), Some(Token::Ident(part))) => {
                    name = format!("{name}.{part}");
                    next += 2;
                }
                _ => return None,
            }
        }
    }

    /// The fields are read for their syntax only: there are no types that could be made like this.
    fn message(&mut self, name: String) -> Result<Expr, Flaw> {
        let at = self.tokens[self.next - 1].0.start;
        while self.take("}").is_none() {
            let _optional = self.take("?");
            let Token::Ident(_) = self.peek() else { return Err(self.unexpected("IDENTIFIER")) };
            self.advance();
            self.expect(":")?;
            self.expression()?;
            if self.take(",").is_none() && !self.is_next("}") {
                return Err(self.unexpected("'}'"));
            }
        }
        Ok(Expr::new(at, Kind::Message(name)))
    }

    fn list(&mut self, at: Offset) -> Result<Expr, Flaw> {
        let mut elements = Vec::new();
        while self.take("]").is_none() {
            let is_optional = self.take("?").is_some();
            elements.push(Element { value: self.expression()?, is_optional });
            if self.take(",").is_none() && !self.is_next("]") {
                return Err(self.unexpected("']'"));
            }
        }
        Self::built(Expr::new(at, Kind::List(elements)))
    }

    fn map(&mut self, at: Offset) -> Result<Expr, Flaw> {
        let mut entries = Vec::new();
        while self.take("}").is_none() {
            let is_optional = self.take("?").is_some();
            let key = self.expression()?;
            self.expect(":")?;
            entries.push(Entry { key, value: self.expression()?, is_optional });
            if self.take(",").is_none() && !self.is_next("}") {
                return Err(self.unexpected("'}'"));
            }
        }
        Self::built(Expr::new(at, Kind::Map(entries)))
    }

    fn number(at: Offset, token: &Token<'_>, is_negative: bool) -> Result<Literal, Flaw> {
        let sign = if is_negative { "-" } else { "" };
        let whole = |text: &str| match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(hex) => i128::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        };
        let literal = match token {
            Token::Int(text) => whole(text)
                .and_then(|number| i64::try_from(if is_negative { -number } else { number }).ok())
                .map(Literal::Int),
            Token::Uint(text) if !is_negative => {
                whole(text).and_then(|number| u64::try_from(number).ok()).map(Literal::Uint)
            }
            Token::Double(text) => format!("{sign}{text}")
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite())
                .map(Literal::Double),
            _ => None,
        };
        let kind = match token {
            Token::Int(_) => "int",
            Token::Uint(_) => "uint",
            _ => "double",
        };
        literal.ok_or_else(|| Flaw::new(at, format!("invalid {kind} literal")))
    }
}
