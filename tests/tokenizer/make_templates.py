#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Writes templates.txt beside itself: Jinja2's results for small templates, in the environment in which
# transformers runs chat templates. By hand, with transformers 5.24 and jinja2 3.1.6; template_test.cc only
# reads it. For each case: the template and its variables; the text, or "error"; the spans of
# {% generation %}, as bytes.
import json
import os

from transformers.utils.chat_template_utils import _compile_jinja_template

here = os.path.dirname(os.path.abspath(__file__))
DATA = {
    "items": [{"role": "user", "k": 1, "in": {"x": "u"}}, {"role": "assistant", "k": "é", "in": {"x": "a"}}, {"role": "tool", "in": {}}],
    "one": {"role": "user", "content": "Hi <b> & 'x'", "none": None, "items": [1], "f": 1.0, "sub": {"a": [1, None, True]}},
    "text": "\u00a0 Aa, bB,,\tc\n\u3000", "wide": "é你😀x", "n": 7, "t": True, "nothing": None, "real": [1.0, 1e16, 1e-7, 0.1, 123456789.25, 5e-324],
    "names": ["b", "A", "a", "B"], "odd": "\u2028\x7f\x01\"\\\b", "empty": [], "tools": None,
}

# Values and their texts.
VALUES = [
    "{{ none }}|{{ true }}|{{ n }}|{{ -n }}|{{ missing }}|{{ real }}|{{ one }}",
    "{{ [] }}|{{ () }}|{{ (1,) }}|{{ {} }}|{{ {'a': [1, 'x'], 2: none} }}|{{ ['it\\'s', '\"', '\\'\"'] }}|{{ [missing] }}",
    "{{ [odd, text, wide] }}",
    "{{ one.f }}|{{ one.f + 1 }}|{{ 7 % 3 }}|{{ -7 % 3 }}|{{ 7 % -3 }}|{{ one.f % n }}|{{ -one.f % n }}",
    "{{ true + 1 }}|{{ 2 * 3 - 1 }}|{{ 'ab' * 2 }}|{{ [1] * 2 + [2] }}|{{ (1, 2) + (3,) }}|{{ not 0 }}|{{ +true }}",
    "{{ 1 == true }}|{{ 1 == one.f }}|{{ 'a' < 'b' }}|{{ [1, 2] < [1, 3] }}|{{ (1,) == [1] }}|{{ none == missing }}|{{ missing == other }}",
    "{{ 1 in [1] }}|{{ 'b' in 'abc' }}|{{ 'a' in {'a': 1} }}|{{ 3 not in (1, 2) }}|{{ none in [none] }}|{{ 1 in missing }}|{{ 'x' in one.sub.items() | list }}",
    "{{ 1 and 'x' }}|{{ 0 or 'y' }}|{{ '' or none }}|{{ not missing }}|{{ 'a' if 0 }}|{{ 'a' if 0 else 'b' if 1 else 'c' }}",
    "{{ 1 ~ 'a' ~ none ~ missing ~ [1] }}",
    "{{ 'a' 'b' \"c\" }}|{{ 'x\\ny\\u00e9\\x41\\101\\d\\\\' }}|{{ \"\\\"\" }}",
    "{{ range(3) | list }}|{{ range(5, 0, -2) | list }}|{{ range(2) }}|{{ range(0) | length }}|{{ range(4)[-1] }}",
    "{{ dict(a=1, b=[2]) }}|{{ dict([('x', 1)]) }}|{{ dict(one.sub, z=1) }}|{{ dict(**one.sub) }}",
    "{{ raise_exception('no') }}",
    "{{ strftime_now('%Y') | length }}|{{ strftime_now is defined }}|{{ strftime_now('%%') }}",
    "{{ 9223372036854775807 }}|{{ -9223372036854775807 }}|{{ 1_000 }}|{{ 0 }}",
]
# Attributes, items and slices.
ACCESS = [
    "{{ one.role }}|{{ one['role'] }}|{{ one.none }}|{{ one.none is none }}|{{ one.gone is defined }}|{{ one['items'] }}|{{ one.items() | length }}",
    "{{ one.sub['items'] is defined }}|{{ one.gone.deep }}",
    "{{ missing.x }}",
    "{{ missing.x is defined }}",
    "{{ missing['x'] }}",
    "{{ nothing.x is defined }}|{{ nothing['x'] is none }}",
    "{{ names[0] }}|{{ names[-1] }}|{{ names[9] is defined }}|{{ names['x'] is defined }}|{{ names.0 }}|{{ (1, 2)[1] }}|{{ 'abc'[1] }}|{{ 'abc'[-3] }}|{{ n[0] is defined }}",
    "{{ wide[1:] }}|{{ wide[:-1] }}|{{ wide[::-1] }}|{{ wide[::2] }}|{{ wide[2:0:-1] }}|{{ wide[-2:] }}|{{ wide[5:] }}|{{ wide[true] }}|{{ wide[none:2] }}",
    "{{ names[1:3] }}|{{ names[::-1] }}|{{ names[3:1:-1] }}|{{ names[:] }}|{{ (1, 2, 3)[::2] }}|{{ names[-9:2] }}|{{ names[2:-9:-1] }}",
    "{{ missing[1:] }}",
    "{{ nothing[1:] }}",
    "{{ names[::0] }}",
    "{{ names.append('x') }}",
    "{{ names.append is defined }}|{{ one.update is defined }}|{{ one.get('role') }}|{{ one.get('x') }}|{{ one.get('x', 3) }}",
    "{{ one.keys() | list }}|{{ one.sub.values() | list }}|{{ one.sub.items() }}|{{ one.sub.keys() }}|{{ one.sub.items() is sequence }}",
    "{{ one.f() }}",
    "{{ missing() }}",
    "{{ items[1].k }}|{{ items[2].k is defined }}",
    "{{ names.x is defined }}",
    "{{ nothing.items() }}",
    "{{ n + 'x' }}",
    "{{ 'x' + n }}",
    "{{ missing + 'x' }}",
    "{{ 'x' - 1 }}",
    "{{ nothing < 1 }}",
    "{{ -'x' }}",
    "{{ missing < 1 }}",
    "{{ 1 in 2 }}",
    "{{ 1 in 'a' }}",
    "{{ {[]: 1} }}",
]
# Methods.
METHODS = [
    "{{ text.strip() }}|{{ text.lstrip() }}|{{ text.rstrip() }}|{{ 'xaxbx'.strip('xb') }}|{{ 'aab'.lstrip('a') }}|{{ 'abb'.rstrip('b') }}|{{ ' \u200b '.strip() | length }}",
    "{{ text.split(',') }}|{{ text.split() }}|{{ text.split(',', 1) }}|{{ 'a b  c '.split(none, 1) }}|{{ 'aXbX'.split('X') }}|{{ ''.split() }}|{{ ''.split('x') }}|{{ 'a'.split(sep='b', maxsplit=2) }}",
    "{{ 'abc'.startswith('a') }}|{{ 'abc'.endswith(('x', 'c')) }}|{{ 'abc'.startswith('') }}|{{ 'a'.endswith('ba') }}",
    "{{ 'aXbX'.replace('X', '-') }}|{{ 'aXbX'.replace('X', '', 1) }}|{{ 'ab'.replace('', '.') }}|{{ ''.replace('', '.') }}",
    "{{ 'aB é'.upper() }}|{{ 'AB É'.lower() }}|{{ 'hELLO wORLD'.capitalize() }}|{{ \"it's a-b x1y\".title() }}|{{ 'ǆ'.capitalize() }}",
    "{{ '{}-{}'.format(1, 'x') }}|{{ '{a}{{}}'.format(a=none) }}",
    "{{ ''.split('') }}",
    "{{ 'a'.split(1) }}",
    "{{ 'a'.startswith(1) }}",
]
FILTERS = [
    "{{ text | trim }}|{{ 'xx1x' | trim('x') }}|{{ n | trim }}|{{ wide | length }}|{{ one | length }}|{{ names | count }}|{{ missing | length }}",
    "{{ n | length }}",
    "{{ [1, none, 'x', true] | join }}|{{ names | join(', ') }}|{{ 'abc' | join('-') }}|{{ items | join('/', attribute='role') }}|{{ missing | join }}",
    "{{ n | join }}",
    "{{ missing | default('D') }}|{{ '' | default('D') }}|{{ '' | default('D', true) }}|{{ nothing | default('D') }}|{{ nothing | d('D', boolean=true) }}|{{ missing | default }}",
    "{{ 'A' | default('D', true) }}|{{ n | d('D', true) }}|{{ 0 | d('D', true) }}|{{ 0 | d('D', false) }}|{{ empty | d('D', true) }}|{{ nothing | d(boolean=true) }}",
    "{{ 'aB c-d (e' | title }}|{{ 'aB' | upper }}|{{ 'aB' | lower }}|{{ 'aB cD' | capitalize }}|{{ none | upper }}",
    "{{ 'a<b' | replace('<', 'X') }}|{{ 'aaa' | replace('a', 'b', 2) }}|{{ 1213 | replace(1, 9) }}",
    "{{ 'a\n\nb\r\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(1, blank=true) }}|{{ 'a\nb' | indent('> ') }}|{{ '' | indent(first=true) }}",
    "{{ '12' | int }}|{{ ' -3 ' | int }}|{{ '4.7' | int }}|{{ 'x' | int }}|{{ 'x' | int(5) }}|{{ one.f | int }}|{{ true | int }}|{{ none | int }}|{{ '1_0' | int }}|{{ '1e2' | int }}|{{ '' | int }}|{{ 'inf' | int }}",
    "{{ names | sort }}|{{ names | sort(case_sensitive=true) }}|{{ names | sort(reverse=true) }}|{{ items | sort(attribute='role') | map(attribute='role') | list }}|{{ [3, 1, 2] | sort }}",
    "{{ [1, 'a'] | sort }}",
    "{{ names | unique | list }}|{{ names | unique(true) | list }}|{{ [3, 1] | min }}|{{ [3, 1] | max }}|{{ names | min }}|{{ [] | min is defined }}|{{ names | first }}|{{ names | last }}|{{ [] | first is defined }}|{{ 'abc' | last }}",
    "{{ {'b': 1, 'A': 2, 'a': 0} | dictsort }}|{{ {'b': 1, 'a': 2} | dictsort(by='value') }}|{{ {'b': 1, 'a': 2} | dictsort(reverse=true) }}",
    "{{ one.sub | items | list }}|{{ missing | items | list }}",
    "{{ n | items | list }}",
    "{{ names | map('upper') | list }}|{{ items | map(attribute='in.x') | list }}|{{ items | map(attribute='k', default='-') | list }}|{{ [[1, 2]] | map('first') | list }}|{{ missing | map('x') | list }}|{{ [' a '] | map('trim') | join }}",
    "{{ items | selectattr('k') | list | length }}|{{ items | selectattr('role', 'equalto', 'user') | map(attribute='k') | list }}|{{ items | selectattr('k', 'defined') | list | length }}|{{ items | rejectattr('role', 'eq', 'user') | list | length }}",
    "{{ [0, 1, '', 'a'] | select | list }}|{{ [0, 1] | reject | list }}|{{ [1, 'a'] | select('string') | list }}|{{ [1, 2] | reject('equalto', 1) | list }}|{{ (items | select) is sequence }}|{{ 'yes' if items | select('none') }}",
    "{% set g = names | select('string') %}{% for x in g %}{{ x }}{% if loop.first %}{% break %}{% endif %}{% endfor %}{{ g | list }}",
    "{{ (names | map('upper'))[0] is defined }}|{{ names | map('upper') | length }}",
    "{{ one | tojson }}|{{ real | tojson }}|{{ odd | tojson }}|{{ wide | tojson }}|{{ wide | tojson(ensure_ascii=true) }}|{{ odd | tojson(true) }}",
    "{{ one.sub | tojson(indent=2) }}|{{ [[], {}] | tojson(indent=1) }}|{{ [1, 2] | tojson(indent=0) }}|{{ {'b': 1, 'a': [1]} | tojson(separators=(',', ':'), sort_keys=true) }}|{{ [1] | tojson(indent='\t') }}|{{ [1] | tojson(4) }}",
    "{{ {1: 1, none: 2, true: 3} | tojson }}|{{ (1, 'x') | tojson }}",
    "{{ missing | tojson }}",
    "{{ one.items() | tojson }}",
    "{{ {(1, 2): 3} | tojson }}",
    "{{ names | string }}|{{ 5 | string + 'x' }}|{{ missing | string }}|{{ 'abc' | list }}|{{ one.sub | list }}",
    "{% if false %}{{ x | nosuch }}{% endif %}ok",
    "{% if true %}{{ 'x' | nosuch }}{% endif %}",
    "{{ 'x' | nosuch if false else 'y' }}",
    "{{ 'x' | nosuch }}",
    "{{ 'x' is nosuch }}",
]
SAFE = [
    "{{ '<a>' | safe + '<b>' }}|{{ '<b>' + '<a>' | safe }}|{{ '<a>' | safe ~ '<b>' }}|{{ ('<a>' | safe) + n | string }}",
    "{% set s = ' <i> ' | safe %}{{ s.strip() + '<' }}|{{ s[1:2] + '&' }}|{{ s.split('i') }}|{{ s.replace('i', '<') }}|{{ s | trim + '\"' }}|{{ s | upper + \"'\" }}|{{ s * 2 + '<' }}",
    "{% set s = 'a\nb' | safe %}{{ s | indent + '<' }}|{{ [s] | join + '<' }}|{{ s | string + '<' }}|{{ s | replace('a', '<') + '<' }}|{{ s | title + '<' }}|{{ s == 'a\nb' }}|{{ {s: 1}['a\nb'] }}|{{ s | tojson + '<' }}",
    "{% set x %}<{% endset %}{{ x + '<' | safe }}",
]
TESTS = [
    "{{ n is number }}|{{ true is number }}|{{ one.f is float }}|{{ n is integer }}|{{ true is integer }}|{{ 'a' is string }}|{{ one is mapping }}|{{ names is mapping }}|{{ nothing is none }}|{{ true is boolean }}|{{ 1 is true }}|{{ false is false }}",
    "{{ names is iterable }}|{{ 'a' is iterable }}|{{ n is iterable }}|{{ missing is iterable }}|{{ names is sequence }}|{{ one is sequence }}|{{ missing is sequence }}|{{ range(2) is sequence }}|{{ missing is undefined }}|{{ x is not defined }}",
    "{{ 1 is equalto 1 }}|{{ 'a' is eq 'b' }}|{{ 1 is ne(2) }}|{{ n is not none and t is true }}|{{ 'x' if n is string else 'y' }}|{{ n is none or t }}",
    "{{ missing.x is defined }}",
]
# White space around tags.
SPACE = [
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n\n",
    "a {% if true %} b {% endif %} c",
    "a\n  {%- if true -%}\n  b\n  {%- endif -%}\n  c",
    "  {{ 'x' }}  \n  {{- 'y' -}}  \n z",
    "a {#- x -#} b {# y #}\nc {# z\n #}\n d",
    "\n{% set x = 1 %}\n{{ x }}\n",
    "{%+ if true %} a {%+ endif +%}\nb",
    "  {%+ if true +%}\n a{% endif %}",
    "a\r\nb\r{{ 'c\r\nd' }}\r\n",
    "\u00a0{%- if true %}\u3000{%- endif %}",
    "x\n\t \u00a0{% if true %}y{% endif %}",
    "{{ '%}' }}{{ {'a': {'b': 1}}['a']['b'] }}{{ \"}}\" }}",
    "{% if true: %}x{% endif %}",
    "{{1}}{{-1}}{{- 1 }}",
    "{{ 'a' -}} \n b",
    "{# {{ x }} #}",
]
SCOPES = [
    "{% set x = 0 %}{% for i in [1, 2, 3] %}{{ x }}{% if i == 1 %}{% set x = 5 %}{% endif %}{{ x }}{% endfor %}{{ x }}",
    "{% if t %}{% set y = 1 %}{% endif %}{{ y }}",
    "{% for i in [1] %}{% set z = 1 %}{% endfor %}{{ z is defined }}",
    "{% for i in names %}{{ tools }}{% endfor %}{% set tools = 1 %}{{ tools }}",
    "{{ tools }}{% for i in [1] %}{{ tools }}{% endfor %}{% set tools = 1 %}{{ tools }}",
    "{% for i in [1] %}{% if false %}{% set n = 1 %}{% endif %}{{ n }}{% endfor %}",
    "{% for i in [1] %}{{ n }}{% set n = 2 %}{{ n }}{% endfor %}{{ n }}",
    "{% set ns = namespace(a=1, b='x') %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}",
    "{% set ns = namespace({'q': 1}, r=2) %}{{ ns.q + ns.r }}{{ ns['q'] }}",
    "{% set n.a = 1 %}",
    "{% set ns = namespace(_x=1) %}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set a, b = 1, [2] %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}",
    "{% set a, b = [1] %}",
    "{% set x %}a{{ n }}{% set y = 1 %}{% endset %}{{ x }}{{ y is defined }}",
    "{% set x | upper | trim %} ab {% endset %}[{{ x }}]",
    "{% filter upper %}a{{ n }}b{% endfilter %}",
    "{% filter indent(2) %}a\nb{% endfilter %}",
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, c=3) }}|{{ m(b=1) }}|{{ m(*[4, 5]) }}|{{ m(**{'a': 6}) }}|{{ m('<') | safe + '<' }}",
    "{% macro m() %}{% endmacro %}{{ m(1) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}",
    "{% macro m() %}{% set n = 1 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}",
    "{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro w() %}[{{ caller() }}]{% endmacro %}{% call w() %}x{{ n }}{% endcall %}",
    "{% macro w() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) w() %}{{ b }}{{ a }}{% endcall %}",
    "{% macro w() %}x{% endmacro %}{% call w() %}{% endcall %}",
    "{% macro w() %}{{ caller is defined }}{% endmacro %}{{ w() }}",
    "{% set ns = namespace(m=none) %}{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{% if i == 1 %}{% set ns.m = m %}{% else %}{{ ns.m() }}{% endif %}{% endfor %}",
    "{% macro m(a=b, b=1) %}{{ a is defined }}{{ b }}{% endmacro %}{{ m() }}{{ m(b=2) }}",
]
LOOPS = [
    "{% for x in names %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }};{% endfor %}",
    "{% for k, v in one.sub.items() %}{{ k }}{{ v }}{% endfor %}{% for c in wide %}{{ c }}.{% endfor %}{% for k in one %}{{ k }}{% endfor %}",
    "{% for x in names if x != 'A' %}{{ loop.index }}{{ x }}{{ loop.length }}{{ loop.nextitem }}{% endfor %}",
    "{% set ns = namespace(s=1) %}{% for x in [1, 2, 3] if ns.s %}{{ x }}{% if x == 2 %}{% set ns.s = 0 %}{% endif %}{% endfor %}",
    "{% set ns = namespace(s=1) %}{% for x in [1, 2, 3] if ns.s %}{{ x }}{{ loop.last }}{% if x == 2 %}{% set ns.s = 0 %}{% endif %}{% endfor %}",
    "{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in missing %}x{% endfor %}{% for x in [] %}y{% endfor %}z",
    "{% for x in nothing %}{% endfor %}",
    "{% for x in n %}{% endfor %}",
    "{% for a, b in [[1, 2], 'xy'] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, b in [[1]] %}{% endfor %}",
    "{% for x in [[1, 2], [3]] %}{% for y in x %}{{ loop.index }}{{ y }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for i in range(3) %}{{ i }}{% endfor %}{{ i is defined }}",
    "{% for x in names %}{% for y in [1] %}{{ loop.last }}{{ x }}{% endfor %}{% endfor %}",
    "{% for x in names | map('upper') %}{{ x }}{{ loop.length }}{% endfor %}",
    "{% for x in [1, 2] %}{% set q %}{% if x == 1 %}{% continue %}{% endif %}b{% endset %}{{ q }}{% endfor %}",
    "{% for x in range(100001) %}{% endfor %}",
    "{% for m in items %}{{ loop.previtem.role if loop.previtem is defined else '-' }}{% endfor %}",
    "{% if 0 %}a{% elif n == 7 %}b{% elif true %}c{% else %}d{% endif %}{% if missing %}x{% else %}y{% endif %}",
]
MARKS = [
    "é{% generation %}你{% endgeneration %}{% generation %}{% endgeneration %}x",
    "{% for i in [1, 2] %}a{% generation %}{{ i }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}{% endfor %}",
    "{% macro m() %}xx{% generation %}yy{% endgeneration %}{% endmacro %}ab{{ m() }}cd",
    "ab{% set x %}c{% generation %}d{% endgeneration %}{% endset %}ef{{ x }}",
    "{% generation %}a{% generation %}b{% endgeneration %}c{% endgeneration %}",
    "a{%- generation -%} b {%- endgeneration -%} c",
    "{% filter upper %}a{% generation %}bc{% endgeneration %}{% endfilter %}",
    "{% for i in [1] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
]

with open(here + "/templates.txt", "w") as out:
    for template in VALUES + ACCESS + METHODS + FILTERS + SAFE + TESTS + SPACE + SCOPES + LOOPS + MARKS:
        blocks, spans = [], []
        try:
            compiled = _compile_jinja_template(template)
            with compiled.environment.activate_tracker(blocks, spans):
                for block in compiled.generate(**DATA):
                    blocks.append(block)
            text = "".join(blocks)
            answer = json.dumps(text)
        except Exception:
            answer, spans = "error", []
        def at(k):
            return len(text[:k].encode()) + max(0, k - len(text))
        print(json.dumps({"template": template}), file=out)
        print(answer, file=out)
        print(*[f"{at(a)} {at(b)}" for a, b in spans], file=out)
    print(json.dumps(DATA), file=out)
