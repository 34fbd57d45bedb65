"""The vectorized loop IR: what it is, how it is written, what it means.

Files in reading order: ``types``, ``nodes``, ``remarks``, ``traverse``; the text form ``lexicon``,
``printer``, ``lexer``, ``forms``, ``expression_parser``, ``statement_parser``, ``parser``; the JSON
form ``serialize``, ``json_reader``; the rules ``checks``, ``verify``; the meaning ``bfloat16``,
``tf32``, ``arithmetic``, ``evaluator``, ``builtins``, ``parameters``, ``interpreter``; index
arithmetic ``simplify``, ``affine``, ``access``, ``lanes``.
"""
