# The commands of the tutorial "Your first workflow".
set -e
# docs: begin run
python flows.py
# docs: end run
# docs: begin look
weft validate flows:sales
weft graph flows:sales
# docs: end look
# docs: begin cli
weft run flows:sales -i shop=graz -i percent=10
weft jobs list
# docs: end cli
# docs: begin push
weft workflows push flows:sales --message "first"
weft run sales --app flows -i shop=linz
# docs: end push
# docs: begin yaml
weft workflows show sales --materialize
# docs: end yaml
