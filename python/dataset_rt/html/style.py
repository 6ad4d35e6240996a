"""The style sheet: colours that follow the page, a notebook's theme or the system."""

from __future__ import annotations

from dataset_rt.html.markup import AnyContent, Markup, element

# Text takes the colour around it, and lines are half transparent: right on every background, also
# where a page stays light on a dark system. Only the colours of bars and badges are chosen.
_LIGHT = (
    "--drt-first:#3b6fd4;--drt-second:#d9822b;--drt-ok:#1a7f37;--drt-bad:#cf222e;--drt-warn:#9a6700"
)
_DARK = (
    "--drt-first:#6d9eff;--drt-second:#f0a35e;--drt-ok:#4ac26b;--drt-bad:#ff7b72;--drt-warn:#e3b341"
)
# JupyterLab, VS Code, Colab, and pages made by Sphinx or MkDocs.
_LIGHT_PAGES = (
    "body[data-jp-theme-light=true]",
    "body.vscode-light",
    "html[theme=light]",
    "[data-theme=light]",
    "[data-md-color-scheme=default]",
)
_DARK_PAGES = (
    "body[data-jp-theme-light=false]",
    "body.vscode-dark",
    "html[theme=dark]",
    "[data-theme=dark]",
    "[data-md-color-scheme=slate]",
)

# Thrice the class where a notebook's rules for all tables must be outdone.
_RULES = """
.drt{color:var(--jp-content-font-color1,var(--vscode-editor-foreground,inherit));
font:13px/1.45 var(--jp-ui-font-family,var(--vscode-font-family,system-ui,sans-serif));
max-width:56em;min-width:0;overflow-wrap:anywhere;
--drt-line:var(--jp-border-color2,var(--vscode-widget-border,rgba(127,127,127,.3)))}
.drt *{box-sizing:border-box}
.drt>*+*{margin-top:.7em}
.drt-title{display:flex;flex-wrap:wrap;align-items:baseline;gap:.2em .7em}
.drt-name{font-size:1.15em;font-weight:600;min-width:0}
.drt-badge{border:1px solid currentColor;border-radius:1em;padding:0 .65em;font-size:.85em;
white-space:nowrap}
.drt-ok{color:var(--drt-ok)}.drt-bad{color:var(--drt-bad)}.drt-warn{color:var(--drt-warn)}
.drt-plain,.drt-key,.drt-note{opacity:.72}
.drt-tiles{display:flex;flex-wrap:wrap;gap:.6em 1.4em}
.drt-tiles>div{min-width:4.5em}
.drt-key{font-size:.9em;font-weight:400}
.drt-value{font-size:1.35em;font-weight:600;line-height:1.25;font-variant-numeric:tabular-nums}
.drt-scroll{overflow-x:auto;max-width:100%}
.drt.drt.drt table{border-collapse:collapse;border:0;margin:0;font-size:1em;width:auto;
font-variant-numeric:tabular-nums;color:inherit;background:none;table-layout:auto}
.drt.drt.drt tr,.drt.drt.drt tr:nth-child(n),.drt.drt.drt tr:hover{background:none}
.drt.drt.drt :is(th,td){padding:.15em 1.2em .15em 0;border:0;text-align:left;vertical-align:top;
max-width:24em;white-space:normal;overflow-wrap:break-word;font-weight:400;line-height:1.45;
color:inherit}
.drt.drt.drt :is(th,td):last-child{padding-right:0}
.drt.drt.drt .drt-right{text-align:right;white-space:nowrap}
.drt.drt.drt :is(.drt-facts th,thead th){opacity:.72;font-size:.9em;white-space:nowrap}
.drt.drt.drt .drt-facts td{overflow-wrap:anywhere;max-width:44em}
.drt.drt.drt thead th{border-bottom:1px solid var(--drt-line)}
.drt.drt.drt .drt-bars{width:100%}
.drt.drt.drt .drt-bars th{max-width:14em;width:1%;white-space:nowrap;overflow:hidden;
text-overflow:ellipsis}
.drt.drt.drt .drt-bars td.drt-right{width:1%}
.drt.drt.drt .drt-bars-cell{width:100%;min-width:5em;vertical-align:middle}
.drt-bar{height:.72em;border-radius:2px}
.drt-bar.drt-first{min-width:2px}
.drt-first{background:var(--drt-first)}
.drt-done{background:var(--drt-ok)}
.drt-track{max-width:36em;height:.6em;border-radius:.3em;background:rgba(127,127,127,.25);overflow:hidden}
.drt-track .drt-bar{height:100%}
.drt-unknown{background:repeating-linear-gradient(90deg,var(--drt-first) 0 1em,
rgba(127,127,127,.25) 1em 2em)}
.drt-figure{max-width:40em}
.drt-histogram{display:block;width:100%;height:6em;border-bottom:1px solid var(--drt-line)}
.drt-fill{fill:var(--drt-first)}
.drt-axis{display:flex;justify-content:space-between;gap:1em;font-size:.9em;opacity:.72}
.drt summary{cursor:pointer}
.drt details>*+*{margin-top:.4em}
"""


def style_sheet() -> Markup:
    """Return the `<style>` element that every fragment needs once."""
    chosen = (
        f".drt{{{_LIGHT}}}"
        f"@media (prefers-color-scheme:dark){{.drt{{{_DARK}}}}}"
        f"{_within(_LIGHT_PAGES)}{{{_LIGHT}}}"
        f"{_within(_DARK_PAGES)}{{{_DARK}}}"
    )
    return Markup(f"<style>{_RULES}{chosen}</style>")


def _within(pages: tuple[str, ...]) -> str:
    return ",".join(f"{page} .drt" for page in pages)


def fragment(*parts: AnyContent) -> Markup:
    """Return the parts, one below the other, with the style sheet: one output of a notebook."""
    return element("div", {"class": "drt"}, style_sheet(), *parts)
