//! Which weights of a model are parameters, and which of these are one.
//!
//! Model files do not tell parameters from what an exporter computed and wrote beside them: masks,
//! positions, the start of a sum. So it is decided, weight by weight, from what there is:
//!
//! - what the file says of it (newer exporters write the kind of each weight that a module has),
//! - its name: a module's (`layers.0.norm.weight`), or one that an exporter made (`val_221`),
//! - its use: the operand of a product, the table of a look-up, the scale of a norm, what is added to
//!   the scores of attention ([`uses`]),
//! - its numbers: 0 and the lowest number, 0, 1, 2, .., sines of positions ([`numbers`]).
//!
//! What a module names is a parameter unless its numbers or the file say that it cannot be one. What an
//! exporter named is a parameter if it is used as these are, and its numbers are no pattern. Nothing is
//! decided in silence: every weight has its reason.

mod names; // names that exporters make
mod numbers; // what the numbers of a weight are
mod quantised; // weights that scale quantised numbers
mod uses; // what a weight is used for
mod ties; // parameters that an exporter wrote twice

use plan::{Constant, Roles, Why, matches};
use planner_ir::{Graph, Source, Type, ValueId};

use crate::TrainError;
pub(crate) use numbers::Numbers;
use ties::ties;
pub(crate) use uses::{Use, Uses};

/// What a model file says that a weight is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declared {
    /// A parameter of a module.
    Parameter,
    /// A buffer of a module, or a constant.
    Constant,
    /// Nothing, in a file that says it of others: what the exporter made itself.
    Nothing,
}

/// What is known of weights besides what they are used for.
#[derive(Clone, Copy)]
pub struct Known<'a, B> {
    /// What the file says of a weight, if it says that of any.
    pub declared: &'a dyn Fn(&str) -> Option<Declared>,
    /// A weight's bytes, little-endian, if they are there.
    pub bytes: &'a dyn Fn(&str) -> Option<B>,
}

/// A weight that may be trained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trained {
    /// Its name.
    pub name: String,
    /// Why it is a parameter.
    pub why: Because,
}

/// Why a weight is a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Because {
    /// The file says so.
    Declared,
    /// It has the name of a module's parameter.
    Named,
    /// It is multiplied as a matrix.
    Product,
    /// It is a table of rows that are looked up.
    Lookup,
    /// It is the scale or the bias of a norm.
    Norm,
    /// It is added to values, or stands among them.
    Added,
    /// Its elements are multiplied, or a function is taken of them.
    Elements,
    /// It was asked for.
    Asked,
}

impl Because {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Declared => "declared",
            Self::Named => "named",
            Self::Product => "product",
            Self::Lookup => "look-up",
            Self::Norm => "norm",
            Self::Added => "added",
            Self::Elements => "elements",
            Self::Asked => "asked",
        }
    }

    /// The reason in words.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Declared => "declared as parameters by the file",
            Self::Named => "named as parameters of modules are, such as `norm.weight`",
            Self::Product => "used as weights of matrix products",
            Self::Lookup => "used as tables that are looked up, as embeddings are",
            Self::Norm => "used as scales or biases of normalisations",
            Self::Added => "used as biases: added to activations, or put beside them",
            Self::Elements => "used element by element, as scales and gates are",
            Self::Asked => "asked for with `--train`",
        }
    }
}

/// What weights are, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The roles, with what was asked.
    pub roles: Roles,
    /// The weights that may be trained, in order of the program.
    pub trained: Vec<Trained>,
    /// Those of them that the model uses in several places, and in how many.
    pub shared: Vec<(String, usize)>,
}

/// What the weights of an imported model are to its training. What was asked stays in it.
pub fn roles<B: AsRef<[u8]>>(
    graph: &Graph,
    asked: &Roles,
    known: &Known<'_, B>,
) -> Result<Found, TrainError> {
    let uses = Uses::of(graph);
    let weights: Vec<(ValueId, &str, &Type)> = graph
        .value_ids()
        .filter_map(|id| match &graph.value(id).source {
            Source::Weight(name) => Some((id, name.as_str(), graph.type_of(id))),
            _ => None,
        })
        .filter(|(_, _, type_)| type_.dtype.is_float() || quantised::is_narrow(type_.dtype))
        .collect();
    for (patterns, what) in [(&asked.frozen, "`--freeze`"), (&asked.trained, "`--train`")] {
        for pattern in patterns {
            if !weights.iter().any(|(_, name, _)| matches(pattern, name)) {
                return Err(TrainError::Pattern(pattern.clone(), what));
            }
        }
    }
    for pattern in &asked.trained {
        let mut matching = weights.iter().filter(|(_, name, _)| matches(pattern, name));
        if let Some((_, name, type_)) = matching.next().filter(|it| quantised::is_narrow(it.2.dtype))
            && matching.all(|it| quantised::is_narrow(it.2.dtype))
        {
            return Err(TrainError::Quantised((*name).to_owned(), type_.dtype));
        }
    }
    let mut found = Found { roles: asked.clone(), trained: Vec::new(), shared: Vec::new() };
    (found.roles.constants, found.roles.ties) = (Vec::new(), Vec::new());
    for &(id, name, type_) in weights.iter().filter(|it| it.2.dtype.is_float()) {
        let numbers = || Numbers::of(type_, (known.bytes)(name)?);
        let asked = asked.trained.iter().any(|pattern| matches(pattern, name));
        let why = if quantised::is_narrow(type_.dtype) {
            Err(Why::Quantised)
        } else if asked {
            Ok(Because::Asked)
        } else {
            role((known.declared)(name), name, type_, numbers().as_ref(), &uses, id)
        };
        match why {
            Ok(why) => {
                found.trained.push(Trained { name: name.to_owned(), why });
                let places = uses.places(id);
                found.shared.extend((places > 1).then(|| (name.to_owned(), places)));
            }
            Err(why) => found.roles.constants.push(Constant { name: name.to_owned(), why }),
        }
    }
    let may_tie = |name: &str| found.trained.iter().any(|it| it.name == name);
    let all = ties(graph, &uses, &may_tie, known);
    for pattern in &asked.untied {
        if !all.iter().any(|tie| matches(pattern, &tie.copy) || matches(pattern, &tie.original)) {
            return Err(TrainError::Pattern(pattern.clone(), "`--untie`: copies of others"));
        }
    }
    let untied = |name: &str| asked.untied.iter().any(|pattern| matches(pattern, name));
    found.roles.ties = all.into_iter().filter(|tie| !untied(&tie.copy) && !untied(&tie.original)).collect();
    Ok(found)
}

/// Whether a weight of one element may be a parameter, by what the file says of it, its name and how many
/// operators read it. One number that an exporter named is a constant: all of them look alike. So is one
/// that many read and no module has: whoever wrote a graph by hand wrote 0.5 once.
pub fn may_be_parameter(declared: Option<Declared>, name: &str, readers: usize) -> bool {
    let is_named = !names::is_made(name) && !names::is_buffer(name) && (readers == 1 || name.contains('.'));
    declared == Some(Declared::Parameter) || declared.is_none() && is_named
}

/// Whether an exporter made a weight's name.
pub(crate) fn is_made(declared: Option<Declared>, name: &str) -> bool {
    match declared {
        Some(Declared::Parameter | Declared::Constant) => false,
        Some(Declared::Nothing) => true,
        None => names::is_made(name),
    }
}

/// Why a weight is a parameter, or why it is none.
fn role<B: AsRef<[u8]>>(
    declared: Option<Declared>,
    name: &str,
    type_: &Type,
    numbers: Option<&Numbers<B>>,
    uses: &Uses<'_>,
    id: ValueId,
) -> Result<Because, Why> {
    if declared == Some(Declared::Constant) || declared.is_none() && names::is_buffer(name) {
        return Err(Why::Buffer);
    }
    let used = uses.of_weight(id);
    let is = |test: &dyn Fn(&Numbers<B>) -> bool| numbers.is_some_and(test);
    let only = |kinds: &[Use]| !used.is_empty() && used.iter().all(|it| kinds.contains(it));
    if is(&Numbers::are_mask) {
        return Err(Why::Mask);
    }
    if only(&[Use::Lookup, Use::Added, Use::Scores, Use::Elements]) && is(&Numbers::are_waves) {
        return Err(Why::Waves);
    }
    let is_vector = type_.shape.iter().filter(|&&extent| extent > 1).count() <= 1;
    let declared_parameter = declared == Some(Declared::Parameter);
    if !declared_parameter && is_vector && uses.makes_angles(id) && !is(&|it| !it.fall()) {
        return Err(Why::Angles);
    }
    if uses.scales_quantised(id) {
        return Err(Why::Scale);
    }
    if !is_made(declared, name) {
        let slopes = !declared_parameter && is(&Numbers::are_slopes)
            || !declared_parameter && only(&[Use::Scores]) && is(&Numbers::are_steps);
        return match slopes {
            true => Err(Why::Progression),
            false if declared_parameter => Ok(Because::Declared),
            false => Ok(Because::Named),
        };
    }
    // The matrix of a layer that starts with 0, as the second of an adapter does. Nobody computes one: its
    // product would be 0.
    if is(&Numbers::are_zero) && uses.is_layer(id) {
        return Ok(Because::Product);
    }
    // 1 + the scales of a norm is 1 where they are new: an exporter that adds them makes such a name.
    let fresh = names::is_sum(name) && only(&[Use::Norm]);
    if is(&Numbers::are_one) && !fresh {
        return Err(Why::Uniform);
    }
    if is(&Numbers::are_signs) && !fresh {
        return Err(Why::Signs);
    }
    if is(&Numbers::are_steps) || is(&Numbers::are_slopes) {
        return Err(Why::Progression);
    }
    if is(&Numbers::repeat) {
        return Err(Why::Expanded);
    }
    let has = |kind: Use| used.contains(&kind);
    match () {
        () if has(Use::Product) => Ok(Because::Product),
        () if has(Use::Lookup) => Ok(Because::Lookup),
        () if has(Use::Norm) => Ok(Because::Norm),
        () if has(Use::Scores) => Err(Why::Scores),
        () if has(Use::Added) => Ok(Because::Added),
        // What was moved only is still a parameter; of what was computed it cannot be told.
        () if has(Use::Elements) && names::is_moved(name) && !is(&Numbers::are_negative) => {
            Ok(Because::Elements)
        }
        () => Err(Why::Computed),
    }
}

#[cfg(test)]
mod tests;
