//! A strict reader of HTML and XML: enough to see that a page is well-formed, and to ask what is in it.

/// A start tag and the text right behind it.
#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) text: String,
}

impl Element {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn has_class(&self, class: &str) -> bool {
        self.attribute("class").is_some_and(|all| all.split(' ').any(|one| one == class))
    }
}

/// All elements in their order.
///
/// # Errors
///
/// What is wrong with the text.
pub(crate) fn parse(text: &str) -> Result<Vec<Element>, String> {
    let mut elements: Vec<Element> = Vec::new();
    let mut open: Vec<String> = Vec::new();
    let mut rest = text.strip_prefix("<!DOCTYPE html>").unwrap_or(text);
    while let Some(start) = rest.find('<') {
        let (before, tag) = rest.split_at(start);
        checked(before)?;
        if let Some(last) = elements.last_mut() {
            last.text.push_str(before);
        }
        let end = tag.find('>').ok_or_else(|| near("a tag without an end", tag))?;
        let (inner, after) = (&tag[1..end], &tag[end + 1..]);
        rest = after;
        if let Some(name) = inner.strip_prefix('/') {
            match open.pop() {
                Some(last) if last == name => continue,
                last => return Err(near(&format!("</{name}> where {last:?} is open"), rest)),
            }
        }
        let element = start_tag(inner.trim_end_matches('/'))?;
        let name = element.name.clone();
        elements.push(element);
        if inner.ends_with('/') || name == "meta" {
            continue;
        }
        // What a browser does not read as markup.
        if name == "script" || (name == "style" && text.starts_with("<!DOCTYPE html>")) {
            let close = rest.find(&format!("</{name}>")).ok_or_else(|| near("no end", rest))?;
            rest = &rest[close..];
        }
        open.push(name);
    }
    checked(rest)?;
    if open.is_empty() { Ok(elements) } else { Err(format!("left open: {open:?}")) }
}

fn start_tag(inner: &str) -> Result<Element, String> {
    let (name, mut rest) = inner.split_once([' ', '\n']).unwrap_or((inner, ""));
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Err(near("not a tag", inner));
    }
    let mut attributes: Vec<(String, String)> = Vec::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            break;
        }
        let quoted = rest.split_once("=\"").and_then(|(key, rest)| {
            let (value, rest) = rest.split_once('"')?;
            Some((key, value, rest))
        });
        let (key, value, behind) = quoted.ok_or_else(|| near("not an attribute", rest))?;
        let plain = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !plain || attributes.iter().any(|(other, _)| other == key) {
            return Err(near("a wrong or repeated attribute", rest));
        }
        checked(value)?;
        attributes.push((key.to_owned(), value.to_owned()));
        rest = behind;
    }
    Ok(Element { name: name.to_owned(), attributes, text: String::new() })
}

/// Text between tags or quotes: no markup but known entities, and only characters that XML allows.
fn checked(text: &str) -> Result<(), String> {
    let entities = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;", "&shy;"];
    let bare = text
        .match_indices('&')
        .any(|(at, _)| !entities.iter().any(|entity| text[at..].starts_with(entity)));
    let control = text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t'));
    if bare || control || text.contains(['<', '>']) {
        return Err(near("text that is not escaped", text));
    }
    Ok(())
}

fn near(what: &str, text: &str) -> String {
    format!("{what}: {:?}", text.chars().take(60).collect::<String>())
}
