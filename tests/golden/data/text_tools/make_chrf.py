"""Makes chrf.jsonl: corpora of bleu.jsonl with the scores of sacrebleu 2.6.0 (pip install sacrebleu==2.6.0).

  python make_chrf.py bleu.jsonl > chrf.jsonl
"""

import json
import sys

from sacrebleu.metrics import CHRF

OPTIONS = [
    dict(),
    dict(word_order=2),
    dict(word_order=2, lowercase=True),
    dict(char_order=3, whitespace=True),
    dict(char_order=0, word_order=3),
    dict(beta=1, word_order=1),
]
EDGES = [
    ("empty", ["", "a", " \t"], [["", "", "b c"]]),
    ("punctuation", ["(hi) - !!", "it's 'so'.", "«x» a,b"], [["(hi) !", "its so .", "«x», b"]]),
    ("sigma", ["ΟΔΟΣ ΣΑΣ İ"], [["οδος σας i̇"], ["ΟΔΟΣ"]]),
    ("case and marks", ["Straße É e\u0301 \U0001F600", "..."], [["STRASSE é É", ". . ."]]),
]


def main(path):
    corpora = [json.loads(line) for line in open(path, encoding="utf-8")]
    corpora = [(c["case"], c["hypotheses"][:12], [r[:12] for r in c["references"]]) for c in corpora[:6]] + EDGES
    for case, hypotheses, references in corpora:
        for options in OPTIONS:
            full = dict(char_order=6, word_order=0, beta=2, lowercase=False, whitespace=False) | options
            metric = CHRF(**full)
            score = metric.corpus_score(hypotheses, references)
            line = dict(case=case, hypotheses=hypotheses, references=references, **full, chrf=score.score)
            line["sentence_chrf"] = [metric.sentence_score(h, [r[i] for r in references]).score for i, h in enumerate(hypotheses)]
            line["signature"] = str(metric.get_signature())
            print(json.dumps(line))


main(sys.argv[1])
