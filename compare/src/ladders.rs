//! Ladders of simulated calls: each transfer mode of an operation beside the others.

use std::sync::Arc;

use rpcrdma_ladder::{Ladder, Picture, Style, TextOptions, svg, text};
use rpcrdma_programs::workload::Workload;
use rpcrdma_setup::units::show_size;
use rpcrdma_setup::{Context, Failure};
use rpcrdma_sim::{Setting, ladder};

use crate::answer::LINUX_RECEIVES;
use crate::options::Options;
use crate::simulated;
use crate::variant::{Variant, longest_inline};

/// The ladders of one operation.
#[derive(Clone, Debug)]
pub struct LadderFigure {
    /// A name for files, without extension.
    pub name: String,
    /// The ladders.
    pub picture: Picture,
}

impl LadderFigure {
    /// Draws the ladders as an SVG file for screens and print.
    #[must_use]
    pub fn svg(&self) -> String {
        svg(&self.picture, Style::Screen)
    }

    /// Draws the ladders in black and white, without a style sheet.
    #[must_use]
    pub fn plain_svg(&self) -> String {
        svg(&self.picture, Style::Plain)
    }

    /// Draws the ladders as text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        text(&self.picture, &TextOptions::default())
    }

    /// Draws the ladders in ASCII, in the width of an Internet-Draft.
    #[must_use]
    pub fn plain_text(&self) -> String {
        let options = TextOptions {
            width: 69,
            ascii: true,
        };
        text(&self.picture, &options)
    }
}

/// Simulates each operation once more, in each transfer mode, and draws the calls.
///
/// # Errors
/// An operation cannot be simulated.
pub(crate) fn figures(
    options: &Options,
    ops: &[Arc<dyn Workload>],
) -> Result<Vec<LadderFigure>, Failure> {
    let mut figures = Vec::new();
    for op in ops.iter().map(|op| &**op) {
        let mut ladders = Vec::new();
        for &via in &options.via {
            let Some(setting) = simulated::configured(options, via)? else {
                continue;
            };
            let (_, drawn) = ladder(&setting, op).context(op)?;
            ladders.push(Ladder {
                name: via.name().to_owned(),
                about: about(via, &setting),
                ..drawn
            });
        }
        let size = op.size().map(|size| show_size(size.into()));
        let name = op.name().to_uppercase();
        let title = match &size {
            Some(size) => format!("One {name} of {size}"),
            None => format!("One {name}"),
        };
        let words = [Some(op.name().to_owned()), size, Some("ladder".to_owned())];
        let words: Vec<String> = words.into_iter().flatten().collect();
        figures.push(LadderFigure {
            name: words.join("-").to_lowercase().replace(' ', "-"),
            picture: Picture {
                title,
                ladders,
                notes: vec![format!(
                    "Time runs downwards, until the client has the results. {}",
                    simulated::assumed(options)?
                )],
            },
        });
    }
    Ok(figures)
}

/// Describes a transfer mode in a few words.
fn about(via: Variant, setting: &Setting) -> String {
    let receives = longest_inline(&setting.requester, setting.version);
    let mode = match via {
        Variant::Tcp => "TCP",
        Variant::V1 => "version 1",
        Variant::V1Inv if receives == LINUX_RECEIVES => "version 1 as Linux runs it",
        Variant::V1Inv => "version 1, remote invalidation",
        Variant::V1Long => "version 1, longer receives",
        Variant::V2 => "version 2 of 2016",
        Variant::V2Ddp => "version 2, placed data",
        Variant::V2Cont => "version 2, continued messages",
        Variant::V2DdpCont => "version 2, placed, continued",
        Variant::Wg => "version 2 of 2022",
        Variant::WgDdp => "version 2 of 2022, placed data",
        Variant::Added(_) => setting.version.name(),
    };
    format!("{mode}; receives of {}", show_size(receives.into()))
}
