"""The style sheet of the page around what `dataset_rt.html` draws."""

from __future__ import annotations

from dataset_rt.html import Markup, style_sheet

_LIGHT = (
    "--page:#f5f6f8;--card:#ffffff;--ink:#1c2330;--edge:#dfe3e9;--soft:#eef1f5;"
    "--rows:#8c99ab;--shade:rgba(0,0,0,.28)"
)
_DARK = (
    "--page:#12161c;--card:#1a2029;--ink:#e4e9f0;--edge:#2d3541;--soft:#242b36;"
    "--rows:#74839a;--shade:rgba(0,0,0,.75)"
)

# Stands for `@@` below: the rules of `dataset_rt.html` are as specific, and come first.
_PAGE = ".report.drt.drt.drt"

_RULES = """
:root{color-scheme:light dark}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);
font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
.report.drt{max-width:1120px;margin:0 auto;padding:28px 24px 40px;font:inherit;color:inherit;
--drt-line:var(--edge)}
.report.drt>*+*{margin-top:20px}
@@ h1{font-size:28px;line-height:1.2;margin:0;font-weight:650;letter-spacing:-.01em}
@@ h2{font-size:17px;line-height:1.3;margin:0;font-weight:650}
@@ h3{font-size:14px;line-height:1.4;margin:0;font-weight:600;display:flex;gap:.6em;
align-items:baseline;justify-content:space-between}
@@ h3 code{font-size:12px;font-weight:400;opacity:.72;white-space:nowrap}
@@ p{margin:0}
@@ code,.report pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.eyebrow{font-size:12px;letter-spacing:.06em;text-transform:uppercase;opacity:.72}
.head{display:flex;flex-wrap:wrap;gap:6px 14px;align-items:center}
.head .drt-badge{font-size:13px;font-weight:600;padding:1px .8em}
.head+.drt-tiles{margin-top:14px}
.panel{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:18px 20px}
.panel>*+*{margin-top:12px}
.panel.bad{border-left:5px solid var(--drt-bad)}
.panel.ok{border-left:5px solid var(--drt-ok)}
.panel.warn{border-left:5px solid var(--drt-warn)}
.said{opacity:.76}
.report .drt-tiles{gap:14px 36px}
.report .drt-value{font-size:20px}
.report .drt-key{font-size:12px}
.report .drt-facts th{padding-right:1.6em}
.report .drt-facts td{max-width:none}
.report .drt-table td,@@ .drt-table th{max-width:22em}
.report .drt-figure{max-width:none}
.report .drt-histogram{height:84px}
.report .drt-bars th{max-width:16em}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,330px),1fr));gap:14px}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr));gap:20px 40px}
.column{border:1px solid var(--edge);border-radius:8px;padding:12px 14px;min-width:0;
break-inside:avoid;display:flex;flex-direction:column;gap:8px}
@@ .column .drt-bars th{max-width:11em}
@@ .column .drt-bars-cell{min-width:3em}
@@ .column .drt-histogram{height:72px}
@@ .samples{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,155px),1fr));
gap:14px}
@@ .samples.wide{grid-template-columns:repeat(auto-fill,minmax(min(100%,300px),1fr))}
@@ .sample{border:1px solid var(--edge);border-radius:8px;overflow:hidden;min-width:0;
break-inside:avoid;display:flex;flex-direction:column}
@@ .face{background:var(--soft);display:flex;align-items:center;justify-content:center;
min-height:64px;overflow:hidden}
.pictured .face{height:140px}
@@ .face img{display:block;max-width:100%;max-height:140px}
@@ .face img.tiny{width:112px;height:112px;object-fit:contain;image-rendering:pixelated}
@@ .face pre{margin:0;padding:10px 12px;font-size:12px;line-height:1.45;width:100%;
white-space:pre-wrap;overflow-wrap:anywhere;align-self:stretch}
@@ .face pre.hex{white-space:pre;overflow-x:auto;line-height:1.5}
@@ .face .none{padding:10px 12px;font-size:12px;text-align:center}
@@ .about{padding:8px 12px 10px;font-size:12px;line-height:1.45}
@@ .about b{font-weight:600;font-variant-numeric:tabular-nums}
@@ .about dl{margin:4px 0 0;display:grid;gap:1px 10px;
grid-template-columns:minmax(0,max-content) minmax(5.9em,1fr)}
@@ .about dt{opacity:.72;max-width:11em;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
@@ .about dd{margin:0;overflow-wrap:anywhere}
@@ .about .whole{white-space:nowrap}
@@ .shares{width:100%}
@@ .shares .track{width:100%;min-width:6em;vertical-align:middle}
@@ .shares .track>div{position:relative;padding:2px 0}
@@ .shares .track .drt-bar{height:9px}
/* Rows are grey, drawn samples blue, weights orange. */
@@ .drt-bars .drt-first,@@ .nulls .drt-first{background:var(--rows)}
@@ .drt-fill{fill:var(--rows)}
@@ .nulls{display:flex;gap:10px;align-items:center;font-size:12px}
@@ .nulls .drt-track{flex:1;height:9px}
@@ .shares .track .stored{background:var(--rows)}
@@ .shares .tick{position:absolute;top:0;bottom:0;width:2px;margin-left:-1px;
background:var(--drt-second)}
@@ .shares th[scope=row]{max-width:15em;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
@@ .shares td,@@ .shares th{vertical-align:middle}
@@ .shares tbody tr:nth-child(odd){background:none}
@@ .keys{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:12px}
@@ .keys i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px;
vertical-align:-1px}
@@ .keys i.stored{background:var(--rows)}.keys i.drawn{background:var(--drt-first)}
@@ .keys i.tick{width:2px;height:13px;background:var(--drt-second);border-radius:0}
@@ .findings>div{display:flex;flex-wrap:wrap;gap:2px 10px;align-items:baseline;padding:4px 0}
@@ .findings .drt-key{width:100%}
@@ .panel>h3{margin-top:18px}
.command{display:block;background:var(--soft);border-radius:6px;padding:8px 12px;font-size:12px;
overflow-wrap:anywhere;white-space:pre-wrap}
footer{font-size:12px}
footer>*+*{margin-top:6px}
@media (max-width:520px){
.report.drt{padding:18px 12px 28px}
.panel{padding:14px}
@@ h1{font-size:23px}
@@ .samples{grid-template-columns:repeat(2,minmax(0,1fr))}
@@ .samples.wide{grid-template-columns:minmax(0,1fr)}
.report .drt-bars th,@@ .shares th[scope=row]{max-width:8.5em}
@@ .shares tr{display:grid;grid-template-columns:minmax(0,1fr) repeat(4,4.2em);padding:4px 0}
@@ .shares td,@@ .shares th{padding:0}
@@ .shares .track{grid-column:1/-1;order:9}
@@ .shares thead th:nth-child(3){display:none}
@@ .shares th{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;max-width:none}
@@ .column .drt-bars th{max-width:8em}
@@ .column .drt-bars-cell{min-width:2em}
.report .drt-facts th{padding-right:.8em}
/* Shadows at the sides say that a table goes on. */
.panel>.drt-scroll{background:linear-gradient(90deg,var(--card) 30%,transparent) left/40px 100%,
linear-gradient(270deg,var(--card) 30%,transparent) right/40px 100%,
linear-gradient(90deg,var(--shade),transparent) left/14px 100%,
linear-gradient(270deg,var(--shade),transparent) right/14px 100%;background-repeat:no-repeat;
background-attachment:local,local,scroll,scroll}
}
@media print{
body{background:#fff;font-size:11px}
.report.drt{max-width:none;padding:0}
.panel{border-color:#ccc}
@@ *{print-color-adjust:exact;-webkit-print-color-adjust:exact}
@@ h2{break-after:avoid}
}
"""


def page_style() -> Markup:
    """Return the `<style>` elements of a report."""
    colours = f":root{{{_LIGHT}}}@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    return Markup(f"{style_sheet()}<style>{colours}{_RULES.replace('@@', _PAGE)}</style>")
