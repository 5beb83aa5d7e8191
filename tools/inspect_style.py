"""The style sheet of the page."""

STYLE = """
:root {
  --page: #fbfbfa; --card: #ffffff; --ink: #1c2128; --soft: #5b6470; --line: #e3e5e8;
  --not: #eceef1; --attends: #2f6fb2; --depends: #d9a94a; --good: #1a7f4b; --warn: #96690a; --bad: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --card: #1b1f24; --ink: #e4e7eb; --soft: #98a2ae; --line: #2d333b;
    --not: #272c33; --attends: #63a4e8; --depends: #c9993a; --good: #57c98a; --warn: #d8ab4d; --bad: #f0857d;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink); line-height: 1.5;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  -webkit-text-size-adjust: 100%;
}
main { max-width: 1040px; margin: 0 auto; padding: 40px 24px 56px; }
code {
  font: 0.92em/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  overflow-wrap: anywhere;
}
h1 { font-size: 26px; line-height: 1.25; font-weight: 650; margin: 0 0 20px; overflow-wrap: anywhere; }
h2 { font-size: 16px; line-height: 1.45; font-weight: 600; margin: 0 0 16px; }
.over { margin: 0 0 2px; color: var(--soft); font-size: 13px; }
.figures { display: flex; flex-wrap: wrap; gap: 12px 40px; margin: 0 0 32px; }
.figures div { display: flex; flex-direction: column-reverse; }
.figures dt { color: var(--soft); font-size: 13px; }
.figures dd { margin: 0; font-size: 22px; line-height: 1.3; font-weight: 600; font-variant-numeric: tabular-nums; }
.good, .good dd { color: var(--good); }
.warn { color: var(--warn); }
.bad dd { color: var(--bad); }
hr { border: 0; border-top: 1px solid var(--line); margin: 16px 0; }
section {
  background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 20px 24px; margin: 0 0 20px;
}
.label {
  display: inline-block; min-width: 24px; padding: 0 6px; margin-right: 6px; border-radius: 4px; text-align: center;
  background: var(--not);
}
.mask { display: flex; flex-wrap: wrap; gap: 20px 48px; align-items: flex-start; margin-bottom: 16px; }
.mask > div { flex: 1 1 260px; min-width: 0; }
figure { margin: 0; max-width: 100%; }
.panels { display: flex; flex-wrap: wrap; gap: 12px 28px; }
.panel { min-width: 0; max-width: 100%; }
.panel-title { display: block; color: var(--soft); font-size: 12px; margin-bottom: 2px; }
svg { display: block; max-width: 100%; height: auto; }
svg text { font: 10px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: var(--soft); }
.not { fill: var(--not); } .attends { fill: var(--attends); } .depends { fill: var(--depends); }
figcaption { color: var(--soft); font-size: 13px; margin-top: 10px; max-width: 56ch; overflow-wrap: anywhere; }
.facts { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 4px 20px; margin: 0 0 12px; }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; }
details { margin: 0 0 4px; }
summary { cursor: pointer; color: var(--soft); }
.nodes { margin: 8px 0 0; padding: 0; list-style: none; columns: 260px; font-size: 13px; }
.nodes li { break-inside: avoid; }
td span:not([class]), .nodes span { color: var(--soft); }
table { width: 100%; table-layout: fixed; border-collapse: collapse; font-size: 14px; }
.sites th:nth-child(1) { width: 32%; } .sites th:nth-child(2) { width: 17%; } .sites th:nth-child(3) { width: 11%; }
.sites th:nth-child(4) { width: 10%; } .sites th:nth-child(5) { width: 9%; }
.unread th:nth-child(1) { width: 28%; } .unread th:nth-child(2) { width: 11%; }
th { text-align: left; font-weight: 500; color: var(--soft); font-size: 13px; }
th, td { padding: 7px 16px 7px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; padding-bottom: 0; }
th:last-child, td:last-child { padding-right: 0; }
td { overflow-wrap: anywhere; }
footer { color: var(--soft); font-size: 13px; max-width: 76ch; margin-top: 24px; }
.legend { display: flex; flex-wrap: wrap; gap: 6px 24px; list-style: none; padding: 0; margin: 0 0 8px; }
.legend li { display: flex; align-items: center; gap: 8px; }
@media (max-width: 640px) {
  main { padding: 24px 14px 40px; }
  section { padding: 16px; }
  h1 { font-size: 22px; }
  .panels { gap: 12px 16px; }
  thead { display: none; }
  tr { display: block; padding: 10px 0; border-bottom: 1px solid var(--line); }
  tr:last-child { border-bottom: 0; padding-bottom: 0; }
  td, tbody tr:last-child td { display: grid; grid-template-columns: 92px minmax(0, 1fr); padding: 2px 0; border: 0; }
  td::before { content: attr(data-label); color: var(--soft); }
}
@media print { section { break-inside: avoid; } }
"""
