//! Reads the part of PDML, tshark's XML, that the checks need: the fields of some protocols, in the
//! order and nesting of the tree.

/// A line of the protocol tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The nesting below the protocol, from 0.
    pub(crate) depth: usize,
    /// The field's name.
    pub(crate) name: String,
    /// The value as shown.
    pub(crate) show: String,
    /// The bytes in hexadecimal.
    pub(crate) value: String,
}

/// A protocol in a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    /// The packet's number, from 1.
    pub(crate) packet: usize,
    /// The protocol's name.
    pub(crate) protocol: String,
    /// Its fields.
    pub(crate) lines: Vec<Line>,
}

/// Returns the protocols of all packets in order.
pub(crate) fn parse(text: &str) -> Vec<Layer> {
    let mut layers: Vec<Layer> = Vec::new();
    let (mut packet, mut depth) = (0, 0);
    // Whether the lines are those of a protocol. A protocol within another is a line of it.
    let mut within = false;
    for line in text.lines().map(str::trim_start) {
        let is_open = !line.ends_with("/>");
        if line.starts_with("<packet>") {
            packet += 1;
            (depth, within) = (0, false);
        } else if line.starts_with("<proto ") && !within {
            layers.push(Layer {
                packet,
                protocol: attribute(line, "name"),
                lines: Vec::new(),
            });
            (depth, within) = (0, is_open);
        } else if line.starts_with("<field ") || line.starts_with("<proto ") {
            if let Some(layer) = layers.last_mut() {
                layer.lines.push(Line {
                    depth,
                    name: attribute(line, "name"),
                    show: attribute(line, "show"),
                    value: attribute(line, "value"),
                });
            }
            depth += usize::from(is_open);
        } else if line.starts_with("</") {
            within &= depth > 0;
            depth = depth.saturating_sub(1);
        }
    }
    layers
}

fn attribute(line: &str, name: &str) -> String {
    let start = format!(" {name}=\"");
    let Some((_, rest)) = line.split_once(&start) else {
        return String::new();
    };
    let text = rest.split('"').next().unwrap_or("");
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    text.replace("&quot;", "\"").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_and_text_are_read() {
        let text = r#"
<packet>
 <proto name="p" pos="0">
  <field name="p.a" show="" value="">
   <field name="p.b" show="x &amp; &lt;y" value="01"/>
   <proto name="_ws.malformed" hide="yes"/>
  </field>
  <field name="p.c" show="7"/>
 </proto>
</packet>
<packet>
 <proto name="q"/>
</packet>"#;
        let layers = parse(text);
        let [p, q] = &layers[..] else {
            panic!("{layers:?}");
        };
        assert_eq!((p.packet, q.packet), (1, 2));
        let lines: Vec<_> = p
            .lines
            .iter()
            .map(|l| (l.depth, l.name.as_str(), l.show.as_str()))
            .collect();
        assert_eq!(
            lines,
            [
                (0, "p.a", ""),
                (1, "p.b", "x & <y"),
                (1, "_ws.malformed", ""),
                (0, "p.c", "7")
            ]
        );
        assert_eq!(p.lines[1].value, "01");
    }
}
