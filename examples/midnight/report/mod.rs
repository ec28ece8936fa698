//! The drill for people: a page that holds everything it needs, and the picture for the README.

mod counts;
mod events;
mod figures;
mod overview;
mod page;
mod picture;
mod plot;
mod scale;
mod shape;
mod words;

use crate::record::Drill;

/// A page of HTML that asks for nothing else and can be read without its script.
pub(crate) fn html(drill: &Drill) -> String {
    page::page(drill)
}

/// An SVG for a README: what happened to the origin, a row for each setting.
pub(crate) fn picture(drill: &Drill) -> String {
    picture::picture(drill)
}
