# One node of a DAG: PRE script, job, POST script, each a line for the shell, or nothing.
#   sh dagnode.sh JOB OUTPUT ERROR [PRE POST SKIP OUTPUTS]
# Its exit code is that of whatever ran last.  With POST, or when PRE ends with SKIP, a node may end well without its
# job: what it was to leave is there all the same, empty.
job=$1 out=$2 err=$3 pre=$4 post=$5 skip=$6 outputs=$7
most=8192

fill() {
  eval "set -- $outputs"
  for each; do
    case $each in */*) mkdir -p -- "${each%/*}" ;; esac
    [ -e "$each" ] || : > "$each"
  done
}

go() (
  [ -z "$out" ] || exec > "$out"
  [ -z "$err" ] || exec 2> "$err"
  eval "$job"
)

for each in "$out" "$err"; do
  case $each in */*) mkdir -p -- "${each%/*}" || exit 126 ;; esac
done

PRE=-1
if [ -n "$pre" ]; then
  (eval "$pre")
  PRE=$?
  if [ "$PRE" = "$skip" ]; then
    fill
    exit 0
  fi
  [ "$PRE" = 0 ] || exit "$PRE"
fi

RETURN=0
if [ -n "$job" ]; then
  go
  RETURN=$?
  if [ "$RETURN" != 0 ]; then # output files of a failed task stay where they are
    [ -z "$out" ] || tail -c "$most" < "$out"
    [ -z "$err" ] || tail -c "$most" < "$err" >&2
  fi
fi

if [ -z "$post" ]; then
  [ -n "$job" ] || fill
  exit "$RETURN"
fi
[ "$RETURN" -le 128 ] || RETURN=-$((RETURN - 128))
(eval "$post") || exit $?
fill
