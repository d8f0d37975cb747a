//! Calls that are no calls: they are written as one, and become something else before anything is checked.

use super::{
    ast::{Expr, Fold, Kind, Literal, Offset, Select, SelectMode},
    error::Flaw,
};

/// No name that can be written.
const ACCUMULATOR: &str = "@result";
const UNUSED: &str = "#unused";
const SORT_INPUT: &str = "@__sortBy_input__";

/// `name(args)`
pub(super) fn global(at: Offset, name: &str, mut args: Vec<Expr>) -> Result<Expr, Flaw> {
    if name != "has" || args.len() != 1 {
        return Ok(Expr::call(at, name, args));
    }
    match args.remove(0) {
        Expr { kind: Kind::Select(select), .. } if select.mode == SelectMode::Value => {
            let Select { operand, field, .. } = *select;
            Ok(Expr::select(at, operand, field, SelectMode::Presence))
        }
        other => Err(Flaw::new(other.at, "invalid argument to has() macro")),
    }
}

/// `target.name(args)`
pub(super) fn member(at: Offset, name: &str, target: Expr, args: Vec<Expr>) -> Result<Expr, Flaw> {
    let is_cel = matches!(&target.kind, Kind::Ident(ident) if ident == "cel");
    let kind = match (name, args.len()) {
        ("all", 2 | 3) => Macro::All,
        ("exists", 2 | 3) => Macro::Exists,
        ("exists_one" | "existsOne", 2 | 3) => Macro::ExistsOne,
        ("map", 2 | 3) => Macro::Map,
        ("filter", 2) => Macro::Filter,
        ("transformList", 3 | 4) => Macro::TransformList,
        ("transformMap", 3 | 4) => Macro::TransformMap,
        ("transformMapEntry", 3 | 4) => Macro::TransformMapEntry,
        ("optMap", 2) => Macro::OptMap,
        ("optFlatMap", 2) => Macro::OptFlatMap,
        ("sortBy", 2) => Macro::SortBy,
        ("bind", 3) if is_cel => Macro::Bind,
        _ => return Ok(Expr::member_call(at, name, target, args)),
    };
    kind.expand(at, target, args)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Macro {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    TransformList,
    TransformMap,
    TransformMapEntry,
    OptMap,
    OptFlatMap,
    SortBy,
    Bind,
}

impl Macro {
    fn expand(self, at: Offset, target: Expr, args: Vec<Expr>) -> Result<Expr, Flaw> {
        match self {
            Self::OptMap | Self::OptFlatMap => self.optional(at, target, args),
            Self::SortBy => sort_by(at, target, args),
            Self::Bind => {
                let mut args = args.into_iter();
                let (Some(name), Some(value), Some(body)) = (args.next(), args.next(), args.next()) else {
                    return Err(Flaw::new(at, "cel.bind() has three arguments"));
                };
                let message = "cel.bind() variable names must be simple identifiers";
                Ok(bind(at, simple_name(&name, message)?, value, body))
            }
            _ => self.range(at, target, args),
        }
    }

    fn range(self, at: Offset, range: Expr, mut args: Vec<Expr>) -> Result<Expr, Flaw> {
        let is_two = match self {
            Self::Map | Self::Filter => false,
            Self::TransformList | Self::TransformMap | Self::TransformMapEntry => true,
            _ => args.len() == 3,
        };
        let variable = variable(&args[0])?;
        let second_variable = if is_two {
            let second = self::variable(&args[1])?;
            if second == variable {
                return Err(Flaw::new(args[1].at, format!("duplicate variable name: {second}")));
            }
            Some(second)
        } else {
            None
        };
        let rest = args.split_off(if is_two { 2 } else { 1 });
        let accumulator = || Expr::ident(at, ACCUMULATOR);
        let key = Expr::ident(at, variable.clone());
        let (init, condition, step, result) = self.parts(at, key, rest)?;
        let fold = Fold {
            range,
            variable,
            second_variable,
            accumulator: ACCUMULATOR.to_owned(),
            init,
            condition,
            step,
            result: result.unwrap_or_else(accumulator),
        };
        Ok(Expr::new(at, Kind::Fold(Box::new(fold))))
    }

    /// How the accumulator begins, until when it goes on, what happens to it, and what it is in the end.
    fn parts(
        self,
        at: Offset,
        key: Expr,
        mut rest: Vec<Expr>,
    ) -> Result<(Expr, Expr, Expr, Option<Expr>), Flaw> {
        let accumulator = || Expr::ident(at, ACCUMULATOR);
        let literal = |literal| Expr::literal(at, literal);
        let empty_map = || Expr::new(at, Kind::Map(Vec::new()));
        let body = rest.pop().ok_or_else(|| Flaw::new(at, "a macro needs a body"))?;
        let filter = rest.pop();
        let go_on = |running: Expr| Expr::call(at, "@not_strictly_false", vec![running]);
        let always = || literal(Literal::Bool(true));
        let filtered = |step: Expr| match filter {
            Some(filter) => Expr::call(at, "_?_:_", vec![filter, step, accumulator()]),
            None => step,
        };
        let append =
            |element: Expr| Expr::call(at, "_+_", vec![accumulator(), Expr::list(at, vec![element])]);
        Ok(match self {
            Self::All => {
                let step = Expr::call(at, "_&&_", vec![accumulator(), body]);
                (literal(Literal::Bool(true)), go_on(accumulator()), step, None)
            }
            Self::Exists => {
                let step = Expr::call(at, "_||_", vec![accumulator(), body]);
                let not = Expr::call(at, "!_", vec![accumulator()]);
                (literal(Literal::Bool(false)), go_on(not), step, None)
            }
            Self::ExistsOne => {
                let one = || literal(Literal::Int(1));
                let more = Expr::call(at, "_+_", vec![accumulator(), one()]);
                let step = Expr::call(at, "_?_:_", vec![body, more, accumulator()]);
                let result = Expr::call(at, "_==_", vec![accumulator(), one()]);
                (literal(Literal::Int(0)), always(), step, Some(result))
            }
            Self::Filter => {
                let step = Expr::call(at, "_?_:_", vec![body, append(key), accumulator()]);
                (Expr::list(at, Vec::new()), always(), step, None)
            }
            Self::TransformMap => {
                let step = Expr::call(at, "cel.@mapInsert", vec![accumulator(), key, body]);
                (empty_map(), always(), filtered(step), None)
            }
            Self::TransformMapEntry => {
                let step = Expr::call(at, "cel.@mapInsert", vec![accumulator(), body]);
                (empty_map(), always(), filtered(step), None)
            }
            _ => (Expr::list(at, Vec::new()), always(), filtered(append(body)), None),
        })
    }

    fn optional(self, at: Offset, target: Expr, args: Vec<Expr>) -> Result<Expr, Flaw> {
        let mut args = args.into_iter();
        let (Some(name), Some(body)) = (args.next(), args.next()) else {
            return Err(Flaw::new(at, "optMap() and optFlatMap() have two arguments"));
        };
        let name = simple_name(&name, "optMap() variable name must be a simple identifier")?;
        let has_value = Expr::member_call(at, "hasValue", target.clone(), Vec::new());
        let value = Expr::member_call(at, "value", target, Vec::new());
        let bound = bind(at, name, value, body);
        let some = if self == Self::OptMap { optional(at, "of", vec![bound]) } else { bound };
        Ok(Expr::call(at, "_?_:_", vec![has_value, some, optional(at, "none", Vec::new())]))
    }
}

fn optional(at: Offset, function: &str, args: Vec<Expr>) -> Expr {
    Expr::call(at, &format!("optional.{function}"), args)
}

fn sort_by(at: Offset, target: Expr, mut args: Vec<Expr>) -> Result<Expr, Flaw> {
    if matches!(target.kind, Kind::Literal(_) | Kind::Map(_) | Kind::Message(_)) {
        let message =
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err(Flaw::new(target.at, message));
    }
    let input = || Expr::ident(at, SORT_INPUT);
    let keys = Macro::Map.range(at, input(), std::mem::take(&mut args))?;
    let sorted = Expr::member_call(at, "@sortByAssociatedKeys", input(), vec![keys]);
    Ok(bind(at, SORT_INPUT.to_owned(), target, sorted))
}

/// A fold over nothing: its accumulator is the variable, and its result the body.
fn bind(at: Offset, name: String, value: Expr, body: Expr) -> Expr {
    let fold = Fold {
        range: Expr::list(at, Vec::new()),
        variable: UNUSED.to_owned(),
        second_variable: None,
        accumulator: name.clone(),
        init: value,
        condition: Expr::literal(at, Literal::Bool(false)),
        step: Expr::ident(at, name),
        result: body,
    };
    Expr::new(at, Kind::Fold(Box::new(fold)))
}

fn variable(expression: &Expr) -> Result<String, Flaw> {
    let name = simple_name(expression, "argument must be a simple name")?;
    if name == "__result__" {
        return Err(Flaw::new(expression.at, "iteration variable overwrites accumulator variable"));
    }
    Ok(name)
}

fn simple_name(expression: &Expr, message: &str) -> Result<String, Flaw> {
    match &expression.kind {
        Kind::Ident(name) => Ok(name.clone()),
        _ => Err(Flaw::new(expression.at, message)),
    }
}
