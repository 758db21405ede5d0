"""Texts that would escape from an expression, or exhaust the machine, wherever that were possible.

Most are the classics that are used against Jinja, Twig, Mako, EL and their kin; the others are made for this language.
``canary.txt`` is a file that must not be read, ``CANARY`` a variable of the environment, ``pwned`` a file that must
not appear.
"""

from __future__ import annotations

import itertools

# What templates reach the interpreter by: each root with each of a few ways up.
_ROOTS = "'' [] {} () 1 1.5 true none inputs inputs.text inputs.list nodes job item index range".split()
_UPS = [
    ".__class__",
    "['__class__']",
    ".__class__.__mro__[1].__subclasses__()",
    ".__class__.__base__.__subclasses__()[40]('canary.txt').read()",
    ".__init__.__globals__",
]
ATTRIBUTES = [f"{{{{ {root}{up} }}}}" for root, up in itertools.product(_ROOTS, _UPS)]

CLASSICS = r"""
{{ ''.__class__.__mro__[2].__subclasses__()[40]('canary.txt').read() }}
{{ ''.__class__.__mro__[1].__subclasses__()[396]('touch pwned',shell=True,stdout=-1).communicate()[0].strip() }}
{{ [].__class__.__base__.__subclasses__()[127].__init__.__globals__['system']('touch pwned') }}
{{ {}.__class__.__bases__[0].__subclasses__() | length }}
{{ ''['__cla' + 'ss__']['__mro__'] }}
{{ ''['__cla' 'ss__'] }}
{{ ''["\x5f\x5fclass\x5f\x5f"] }}
{{ ''["\u005f\u005fclass\u005f\u005f"] }}
{{ ''["\137\137class\137\137"] }}
{{ ''["\N{LOW LINE}\N{LOW LINE}class__"] }}
{{ ''.__ｃlass__ }}
{{ ''['__CLASS__' | lower] }}
{{ ''['__ssalc__' | reverse] }}
{{ ''[['__class__'] | first] }}
{{ ''[('__class__', '__mro__') | join] }}
{{ ''['_' * 2 ~ 'class' ~ '_' * 2] }}
{{ '' | attr('__class__') }}
{{ '' | attr('\x5f\x5fclass\x5f\x5f') }}
{{ inputs | attr('__class__') | attr('__mro__') }}
{{ inputs.list | map('attr', '__class__') | list }}
{{ inputs.list | map(attribute='__class__') | list }}
{{ inputs.list | map(attribute='__class__.__mro__.1') | list }}
{{ [''] | map(attribute='__class__', default='x') | map(attribute='__mro__', default='y') }}
{{ inputs.list | selectattr('__class__') | list }}
{{ inputs.list | selectattr('__class__', 'defined') | list }}
{{ inputs.list | rejectattr('__class__', 'undefined') | list }}
{{ inputs.rows | groupby('__class__') }}
{{ inputs.rows | sort(attribute='__class__') }}
{{ inputs.rows | unique('__class__') }}
{{ inputs.rows | sum('__class__') }}
{{ inputs.rows | min(attribute='__class__') }}
{{ inputs.rows | join('', attribute='__class__') }}
{{ inputs.list | map('map', attribute='__class__') }}
{{ '%s' % ''.__class__ }}
{{ '%c%c' % (95, 95) }}
{{ '%(x)s' % inputs }}
{{ '{0.__class__}'.format('') }}
{{ '{0.__class__.__init__.__globals__[CANARY]}'.format(inputs) }}
{{ '{x.__class__}'.format_map(inputs) }}
{{ '{0.__class__}' | format('') }}
{{ '%s' | format(inputs.__class__) }}
{{ ('%' ~ 's') | format(inputs) }}
{{ f'{inputs.__class__}' }}
{{ self }}
{{ self.__init__ }}
{{ self.__dict__ }}
{{ self._TemplateReference__context }}
{{ self._TemplateReference__context.cycler.__init__.__globals__.os.popen('touch pwned').read() }}
{{ cycler }}
{{ cycler.__init__.__globals__.os.popen('id').read() }}
{{ joiner.__init__.__globals__.os.popen('id').read() }}
{{ namespace.__init__.__globals__.os.popen('id').read() }}
{{ namespace(a=1).a }}
{{ lipsum }}
{{ lipsum.__globals__['os'].popen('touch pwned').read() }}
{{ lipsum() }}
{{ lipsum(n=100000) }}
{{ lipsum | attr('__globals__') }}
{{ config }}
{{ config.items() }}
{{ config.__class__.__init__.__globals__['os'].environ['CANARY'] }}
{{ config.from_pyfile('canary.txt') }}
{{ request }}
{{ request.application.__globals__.__builtins__.__import__('os').popen('id').read() }}
{{ request['__cl' 'ass__'] }}
{{ request | attr('application') | attr('\x5f\x5fglobals\x5f\x5f') }}
{{ request.environ['CANARY'] }}
{{ session }}
{{ g.pop.__globals__ }}
{{ url_for.__globals__.os.environ }}
{{ url_for.__globals__['current_app'].config }}
{{ get_flashed_messages.__globals__.__builtins__ }}
{{ current_app.config }}
{{ app }}
{{ handler.settings }}
{{ environment }}
{{ env }}
{{ context }}
{{ loop }}
{{ loop.__class__ }}
{{ caller() }}
{{ varargs }}
{{ kwargs }}
{{ super() }}
{{ undefined.__class__ }}
{{ nobody.__init__.__globals__ }}
{{ (nobody | default('')).__class__ }}
{{ inputs.nobody.__class__ }}
{{ (inputs.nobody | default).__class__ }}
{{ inputs.nobody.name }}
{{ inputs.nobody.__init__.__globals__.__builtins__.open('canary.txt').read() }}
{{ true.__class__.__mro__ }}
{{ (1).__class__.__base__ }}
{{ 1.0.__class__ }}
{{ none.__class__ }}
{{ dict.__base__.__subclasses__() }}
{{ dict(a=1).__class__ }}
{{ dict.mro() }}
{{ range.__class__.__base__ }}
{{ range(1).__class__ }}
{{ range.__init__.__globals__ }}
{{ range | attr('__class__') }}
{{ open('canary.txt').read() }}
{{ open('pwned', 'w').write('x') }}
{{ __import__('os').system('touch pwned') }}
{{ __builtins__ }}
{{ __builtins__.open('canary.txt') }}
{{ __name__ }}
{{ __file__ }}
{{ __loader__ }}
{{ os.environ.CANARY }}
{{ os.environ['CANARY'] }}
{{ sys.modules }}
{{ globals() }}
{{ locals() }}
{{ vars() }}
{{ dir() }}
{{ eval('1') }}
{{ exec('import os') }}
{{ compile('1', '', 'eval') }}
{{ getattr('', '__class__') }}
{{ setattr(inputs, 'a', 1) }}
{{ type('') }}
{{ print(1) }}
{{ input() }}
{{ exit() }}
{{ help() }}
{{ breakpoint() }}
{{ debug() }}
{{ builtins.canary }}
{{ canary }}
{{ inputs.__dict__ }}
{{ inputs.__getitem__('text') }}
{{ inputs['__getitem__'] }}
{{ inputs.get('text') }}
{{ inputs.keys() }}
{{ inputs.items() }}
{{ inputs.pop('text') }}
{{ inputs.clear() }}
{{ inputs.update({'text': 'pwned'}) }}
{{ inputs.setdefault('canary', 1) }}
{{ inputs.list.append(1) }}
{{ inputs.list.sort() }}
{{ inputs.list.__iadd__([1]) }}
{{ inputs.text.encode() }}
{{ inputs.text.upper.__self__ }}
{{ inputs.text.translate({}) }}
{{ inputs.text.join.__call__ }}
{{ inputs.text.__format__('100000000d') }}
{{ inputs.__class__.__name__ }}
{{ inputs.rows[0].__class__ }}
{{ inputs.rows.0.__class__ }}
{{ nodes.fetch.output.__class__ }}
{{ nodes['fetch']['output']['__class__'] }}
{{ job.__class__.__subclasses__() }}
{{ (x for x in inputs) }}
{{ [x for x in inputs.list] }}
{{ lambda: 1 }}
{{ (lambda: 1)() }}
{{ x := 1 }}
{{ inputs.text = 'pwned' }}
{{ import os }}
{{ await inputs }}
{{ yield 1 }}
{{ *inputs.list }}
{{ **inputs }}
{{ `id` }}
{{ inputs.text | upper(*inputs.list) }}
{{ inputs.text | upper(**inputs) }}
{{ inputs.list | map('map', 'attr', '__class__') }}
{{ inputs.list | map('__class__') }}
{{ inputs.list | map('_map') }}
{{ inputs.list | map(name='upper') }}
{{ inputs.list | map('default', budget=1) }}
{{ inputs.list | map(budget=1) }}
{{ inputs.text | default(budget=1) }}
{{ inputs.list | select('callable') }}
{{ inputs.list | select('__class__') }}
{{ inputs.list | sort(key=1) }}
{{ inputs.text is callable }}
{{ inputs.text is filter }}
{{ 'upper' is filter }}
{{ inputs is sameas inputs }}
{{ inputs.text | safe }}
{{ inputs.text | escape }}
{{ inputs.text | forceescape }}
{{ inputs.text | xmlattr }}
{{ inputs | pprint }}
{{ inputs | dictsort }}
{{ inputs.text | filesizeformat }}
{{ inputs.text | urlize }}
{{ inputs.text | indent(1000000000) }}
{{ inputs.text | center(1000000000) }}
{{ inputs.text | wordwrap(1) }}
{{ inputs.text | random }}
{{ inputs.list | random }}
{{ inputs.list | slice(1000000000) }}
{{ inputs.text | striptags }}
{{ inputs.text | include('canary.txt') }}
{{ '\ud800' }}
{{ '\ud83d' ~ '\ude00' }}
{{ '\x00' }}
{{ inputs['\x00'] }}
{{ inputs['\udfff'] }}
{{ '\ud800' in inputs.text }}
{{ ['\ud800'] | tojson }}
{{ '"\ud800"' | fromjson }}
{{ '{"__class__": 1}' | fromjson }}
{{ '{"$ref": "file:///etc/passwd"}' | fromjson }}
{{ '!!python/object/apply:os.system [id]' | fromjson }}
{{ 'NaN' | fromjson }}
{{ '1e999' | fromjson }}
{{ 1e999 }}
{{ -1e999 }}
{{ 1e308 * 10 - 1e308 * 10 }}
{{ inputs[1:2, 3] }}
{{ inputs.list[1:2, ::3] }}
{{ inputs[()] }}
{{ inputs[{}] }}
{{ inputs[[1]] }}
{{ inputs[none] }}
{{ {[1]: 2} }}
{{ {{}: 2} }}
{{ inputs.list[true] }}
{{ inputs.list[1.5] }}
{{ inputs.list[9223372036854775807] }}
{{ inputs.list[-9223372036854775807] }}
{{{{ inputs }}}}
{{ '{{ 1 }}' }}
{{ '{' ~ '{ open("canary.txt") }' ~ '}' }}
{{ "}}" }}{{ open("canary.txt") }}
${{ inputs.text }}
${7*7}
#{7*7}
<%= 7*7 %>
${T(java.lang.Runtime).getRuntime().exec('id')}
{{7*'7'}}{{ self }}
{{_self.env.registerUndefinedFilterCallback("exec")}}
{php}echo `id`;{/php}
{{=1}}
""".strip().splitlines()

STATEMENTS = r"""
{% import 'os' as os %}{{ os }}
{% from 'os' import system %}{{ system('touch pwned') }}
{% include 'canary.txt' %}
{% include ['canary.txt'] ignore missing %}
{% extends 'canary.txt' %}
{% block a %}{{ self }}{% endblock %}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}
{% call m() %}x{% endcall %}
{% set x = ''.__class__ %}{{ x }}
{% set ns = namespace(x=1) %}{% set ns.x = 2 %}
{% set x %}{{ open('canary.txt') }}{% endset %}
{% for x in range(1000000000) %}{{ x }}{% endfor %}
{% for c in [].__class__.__base__.__subclasses__() %}{% if c.__name__ == 'Popen' %}{{ c }}{% endif %}{% endfor %}
{% for x in inputs recursive %}{{ loop(x) }}{% endfor %}
{% if ''.__class__ %}a{% endif %}
{% if 1 %}a{% else %}b{% endif %}
{% filter upper %}a{% endfilter %}
{% filter attr('__class__') %}a{% endfilter %}
{% with a = 1 %}{{ a }}{% endwith %}
{% autoescape false %}{{ inputs.text }}{% endautoescape %}
{% raw %}{{ open('canary.txt') }}{% endraw %}
{% do inputs.update({'a': 1}) %}
{% debug %}
{% trans %}a{% endtrans %}
{% print(1) %}
{%- set x = 1 -%}{{ x }}
{%+ if 1 %}{% endif %}
{# {{ open('canary.txt') }} #}
{# a #}{{ self }}
{{ 1 }}{% set x = 1 %}
""".strip().splitlines()

RESOURCES = [
    "{{ range(1000000000) }}",
    "{{ range(9223372036854775807) | length }}",
    "{{ range(-9223372036854775807, 9223372036854775807) | list }}",
    "{{ range(0, -1000000000, -1) | sum }}",
    "{{ range(200000) | list | list }}",
    "{{ range(100000) | map('string') | join(',') | length }}",
    "{{ 9 ** 9 ** 9 ** 9 }}",
    "{{ 9 ** 1000000000 }}",
    "{{ 9223372036854775807 ** 1024 }}",
    "{{ 10 ** 1000 ** 1000 }}",
    "{{ 2 ** 0.5 ** -1000 }}",
    "{{ (-2) ** 0.1 }}",
    "{{ 1e308 ** 2 }}",
    "{{ 1000000000000 * 1000000000000 }}",
    "{{ 'a' * 1000000000 }}",
    "{{ 1000000000 * 'a' }}",
    "{{ 'a' * 9223372036854775807 }}",
    "{{ [0] * 1000000000 }}",
    "{{ 1000000000 * [0] }}",
    "{{ 'a' * 16777216 }}",
    "{{ 'a' * 16000000 * 2 }}",
    "{{ ('a' * 4000000) ~ ('a' * 4000000) ~ ('a' * 4000000) ~ ('a' * 4000000) ~ ('a' * 4000000) }}",
    "{{ " + " ~ ".join(["inputs.long"] * 700) + " }}",
    "{{ " + " + ".join(["inputs.long"] * 200) + " }}",
    "{{ [" + ", ".join(["inputs.long"] * 700) + "] }}",
    "{{ {" + ", ".join(f"'{n}': inputs.long" for n in range(500)) + "} }}",
    "{{ [" + ", ".join(["inputs.rows"] * 700) + "] | tojson }}",
    "".join(["{{ inputs.long }}"] * 500),
    "{{ inputs.long | replace('x', inputs.long) }}",
    "{{ inputs.long | replace('', inputs.long) }}",
    "{{ inputs.long | replace('x', 'xx') | replace('x', 'xx') | replace('x', 'x' * 100) | length }}",
    "{{ 'a'" + " | replace('a', 'aa')" * 60 + " }}",
    "{{ 'a'" + " * 2" * 100 + " }}",
    "{{ [1]" + " * 2" * 100 + " }}",
    "{{ ['a']" + " | map('replace', 'a', 'aaaaaaaaaa')" * 12 + " }}",
    "{{ range(100000) | join(inputs.long) }}",
    "{{ range(1000) | join('a' * 100000) }}",
    "{{ range(1000) | map('default', 1) | join(inputs.long) | length }}",
    "{{ ([none] * 100000) | map('default', inputs.long, true) | join }}",
    "{{ ([none] * 100000) | map('default', inputs.long, true) }}",
    "{{ ([none] * 1000) | map('default', [inputs.rows] * 1000, true) }}",
    "{{ ([{}] * 1000) | map(attribute='x', default=[inputs.rows] * 1000) }}",
    "{{ ([inputs.long] * 1000) | map('reverse') | map('first') }}",
    "{{ ([inputs.long] * 1000) | map('truncate', 99999) | map('length') }}",
    "{{ ([inputs.long] * 1000) | map('upper') | map('length') }}",
    "{{ ([inputs.long] * 1000) | map('urlencode') | map('length') }}",
    "{{ ([inputs.long] * 1000) | map('title') | map('length') }}",
    "{{ ([inputs.long] * 1000) | map('string') | map('length') }}",
    "{{ ([inputs.long] * 1000) | map('tojson') | map('length') }}",
    "{{ ([inputs.long] * 1000) | map('list') | map('length') }}",
    "{{ ([inputs.long] * 1000) | map('split', 'x') | map('length') }}",
    "{{ ([inputs.long] * 1000) | map('replace', 'x', 'yy') | map('length') }}",
    "{{ ([inputs.long] * 90000) | select('eq', inputs.same) | list | length }}",
    "{{ ([inputs.long] * 90000) | select('ne', inputs.same) | list | length }}",
    "{{ ([inputs.long] * 90000) | select('lt', inputs.same) | list | length }}",
    "{{ ([inputs.long] * 90000) | select('ge', inputs.same) | list | length }}",
    "{{ ([inputs.long] * 90000) | select('in', inputs.same) | list | length }}",
    "{{ (['y'] * 90000) | select('in', inputs.long) | list | length }}",
    "{{ ([inputs.long] * 90000) | reject('containing', 'y') | list | length }}",
    "{{ ([inputs.long] * 90000) | select('startingwith', inputs.same) | list | length }}",
    "{{ ([inputs.long] * 90000) | select('endingwith', inputs.same) | list | length }}",
    "{{ ([inputs.rows] * 90000) | select('eq', inputs.rows) | list | length }}",
    "{{ ([inputs.rows] * 90000) | select('in', [inputs.rows]) | list | length }}",
    "{{ inputs.long in ([inputs.same] * 90000) }}",
    "{{ ([inputs.long] * 10000) | sort | length }}",
    "{{ ([inputs.rows] * 10000) | sort | length }}",
    "{{ ([inputs.long] * 10000) | max | length }}",
    "{{ ([inputs.long] * 90000) | unique | length }}",
    "{{ ([{'a': inputs.long}] * 90000) | groupby('a') | length }}",
    "{{ ([{'a': inputs.long}] * 90000) | sort(attribute='a') | length }}",
    "{{ range(150000) | sort(reverse=true) }}",
    "{{ range(20000) | sort | sort | sort | sort | sort | sort }}",
    "{{ ([{'a': 1}] * 90000) | map(attribute='a.' * 400000) | list }}",
    "{{ ([{'a': 1}] * 90000) | map(attribute='" + "a." * 2000 + "') | list }}",
    "{{ ([{'a': 1}] * 90000) | selectattr('" + "a." * 2000 + "', 'defined') | list }}",
    "{{ [1] | map('a' * 8000000) }}",
    "{{ [1] | select('a' * 8000000) }}",
    "{{ inputs['a' * 8000000] }}",
    "{{ 'a' * 8000000 | int }}",
    "{{ ('9' * 8000000) | int }}",
    "{{ ('9' * 8000000) | float }}",
    "{{ ('[' * 8000000) | fromjson }}",
    "{{ ('[' * 1000 ~ ']' * 1000) | fromjson }}",
    "{{ ('[' * 1000 ~ ']' * 1000) | fromjson | tojson }}",
    "{{ ('[' * 1000 ~ ']' * 1000) | fromjson | string }}",
    "{{ ('[' * 1000 ~ ']' * 1000) | fromjson == 1 }}",
    "{{ (('[' * 1000 ~ ']' * 1000) | fromjson) == (('[' * 1000 ~ ']' * 1000) | fromjson) }}",
    "x{{ ('[' * 1000 ~ ']' * 1000) | fromjson }}",
    "{{ ('[' * 900 ~ ']' * 900) | fromjson | flatten }}",
    "{{ ('[' ~ '1,' * 4000000 ~ '1]') | fromjson | length }}",
    "{{ ('[' ~ '1,' * 700000 ~ '1]') | fromjson | length }}",
    "{{ ('9' * 100000) | fromjson }}",
    "{{ [[[[[[1] * 100] * 100] * 100] * 100] * 100] * 100 }}",
    "{{ ([[[[[1] * 100] * 100] * 100] * 100] * 100) ~ '' }}",
    "{{ ([[[[[1] * 100] * 100] * 100] * 100] * 100) | string | length }}",
    "{{ ([[[[[1] * 100] * 100] * 100] * 100] * 100) | tojson | length }}",
    "{{ ([[[[[1] * 100] * 100] * 100] * 100] * 100) | int }}",
    "{{ ([[[[[1] * 100] * 100] * 100] * 100] * 100) | float }}",
    "{{ ([[[[[1] * 100] * 100] * 100] * 100] * 100) | upper }}",
    "{{ ([[[[[1] * 100] * 100] * 100] * 100] * 100) | unique }}",
    "{{ ([[[[[1] * 100] * 100] * 100] * 100] * 100) | sort }}",
    "{{ ([[[[[1] * 100] * 100] * 100] * 100] * 100) | sum }}",
    "{{ ([[[[[1] * 100] * 100] * 100] * 100] * 100) | flatten | flatten | flatten | flatten }}",
    "{{ ([[[[[1] * 100] * 100] * 100] * 100] * 100) == ([[[[[1] * 100] * 100] * 100] * 100] * 100) }}",
    "{{ ([[[[[1] * 100] * 100] * 100] * 100] * 100) < ([[[[[1] * 100] * 100] * 100] * 100] * 100) }}",
    "{{ ([[[[[1] * 100] * 100] * 100] * 100] * 100) in [([[[[[1] * 100] * 100] * 100] * 100] * 100)] }}",
    "{{ {'a': {'b': [{'c': [inputs.rows] * 300}] * 300}} }}",
    "{{ inputs.long[:] ~ inputs.long[:] ~ inputs.long[::-1] }}",
    "{{ [" + ", ".join(["inputs.long[1:]"] * 500) + "] | length }}",
    "{{ inputs.long[-9223372036854775807:9223372036854775807:9223372036854775807] }}",
    "{{ range(100000)[::-1][::-1][::-1] }}",
    "{{ inputs.long | batch(1) }}",
    "{{ inputs.long | list | batch(1) | map('join') | join }}",
    "{{ inputs.long | truncate(9223372036854775807) | length }}",
    "{{ 1 | round(9223372036854775807) }}",
    "{{ 1 | round(-9223372036854775807) }}",
    "{{ 'a' | replace('a', 'b', 9223372036854775807) }}",
    "{{ 'a' | split('a', 9223372036854775807) }}",
    "{{ 'a' | split('a', 99999999999999999999) }}",
    "{{ " + "(" * 4000 + "1" + ")" * 4000 + " }}",
    "{{ " + "[" * 4000 + "]" * 4000 + " }}",
    "{{ " + "[" * 60 + "]" * 60 + " }}",
    "{{ " + "{'a':" * 1500 + "1" + "}" * 1500 + " }}",
    "{{ " + "not " * 2400 + "1 }}",
    "{{ " + "-" * 9000 + "1 }}",
    "{{ 1" + "+1" * 4900 + " }}",
    "{{ 1" + "**1" * 3000 + " }}",
    "{{ 1" + "~1" * 4900 + " }}",
    "{{ 1" + "<2" * 4900 + " }}",
    "{{ 1" + " and 1" * 1600 + " }}",
    "{{ 1" + " or 1" * 1600 + " }}",
    "{{ " + "1 if 1 else " * 800 + "1 }}",
    "{{ inputs" + ".a" * 4900 + " }}",
    "{{ inputs" + "[0]" * 3300 + " }}",
    "{{ inputs" + "[inputs" * 1200 + "]" * 1200 + " }}",
    "{{ inputs.list" + "|list" * 1900 + " }}",
    "{{ inputs.list" + "[:]" * 3300 + " }}",
    "{{ 1" + " is odd" * 1400 + " }}",
    "{{ '" + "a" * 20_000 + "' }}",
    "{{ inputs" + ".a" * 100_000 + " }}",
    "{{ " + "9" * 5000 + " }}",
    "{{ 0x" + "f" * 5000 + " }}",
    "{{ 0." + "9" * 9000 + " }}",
    "{{ 1e" + "9" * 5000 + " }}",
    "{{ " + "a" * 9000 + " }}",
    "{{ 1 | " + "a" * 9000 + " }}",
    "{{ 1 is " + "a" * 9000 + " }}",
    "{" * 10_000,
    "{{" * 5000,
    "{{ 1 }}" * 1400,
    "{{ '" + "{{" * 4000 + "' }}",
    "{#" * 5000,
    "{{ ' " * 2000,
    "{{ " + "\\" * 9000 + " }}",
    "{{ '" + "\\x41" * 2400 + "' }}",
    "{{ " + " " * 9900 + " }}",
    "{{ 1 " + "\n" * 9900 + " }}",
]

PAYLOADS = list(dict.fromkeys([*ATTRIBUTES, *CLASSICS, *STATEMENTS, *RESOURCES]))
