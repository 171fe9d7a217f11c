#compdef vmlane vmlanectl
# zsh completion for vmlane and vmlanectl. As in vmlane.bash, commands, options and choices are asked of the programs'
# own --help; links are those of `vmlanectl list`.

local program=${words[1]} command=${words[2]} before=${words[CURRENT-1]} value
local -a found

_vmlane_lines() { # SED-SCRIPT PROGRAM ARGUMENTS...: what the script makes of the help, in `found`
    local script=$1
    shift
    found=(${(f)"$("$@" --help 2>/dev/null | sed -n "$script")"})
}

_vmlane_links() {
    found=(${(fu)"$(vmlanectl list --json 2>/dev/null | tr ',{' '\n\n' | sed -n 's/^"name": *"\([^"]*\)"$/\1/p')"})
    compadd -X 'link' -a found
}

if (( CURRENT == 2 )); then
    _vmlane_lines 's/^  \([a-z][a-z-]*\)  *\(.*\)/\1:\2/p' $program
    found+=(--help:'a summary' --version:'version and commit')
    _describe command found
    return
fi

if [[ $before =~ ^--[a-z-]+$ ]]; then
    _vmlane_lines "s/^  $before \\([^ ]*\\).*/\\1/p" $program $command
    value=${found[1]}
    case $before:$value in
    --layout:*) compadd shared direction dedicated map: ; return ;;
    --hugepages:*) compadd auto on off ; return ;;
    --log-level:*) compadd error warn info debug ; return ;;
    --sort:*) compadd traffic name drops wait depth ; return ;;
    --stats-group:*) _groups ; return ;;
    --link:*) [[ ${program:t} == vmlanectl ]] && _vmlane_links ; return ;;
    --a:*|--b:*)
        _vmlane_lines '/^Ports,/,/^Policy/s/^  \([a-z]*\):.*/\1:/p' vmlane run
        compadd -S '' -X 'port' -a found
        compadd null
        return ;;
    *:*'|'*) compadd ${(s:|:)value} ; return ;;
    *:FILE) _files ; return ;;
    *:[A-Z]*) return ;;
    esac
fi

if [[ $command == exec && ${words[(i)--]} -lt $CURRENT ]]; then
    if [[ $before == -- ]]; then _command_names -e; else _files; fi
    return
fi
if [[ $command == check-config && $PREFIX != -* ]]; then
    _files
    return
fi
if [[ $PREFIX == -* || ${program:t} == vmlane ]]; then
    _vmlane_lines 's/^  \(--[a-z-]*\).*/\1/p' $program $command
    compadd -a found
    return
fi

if [[ $command == capture && $before == -w ]]; then
    _files
    return
fi

case $command in
export) (( CURRENT == 3 )) && compadd prometheus ;;
plot) _files ;;
list|reload) ;;
link)
    if (( CURRENT == 3 )); then
        compadd add remove
    elif [[ ${words[3]} == remove ]] && (( CURRENT == 4 )); then
        _vmlane_links
    fi ;;
get|set)
    if (( CURRENT == 3 )); then
        _vmlane_links
    elif [[ $command == set && $PREFIX =~ ^[a-z-]+= ]]; then
        _vmlane_lines "s/^  --${PREFIX%%=*} \\([^ ]*\\).*/\\1/p" vmlane run
        [[ $PREFIX == layout=* ]] && found=('shared|direction|dedicated|map:')
        compset -P '*='
        [[ ${found[1]} == *'|'* ]] && compadd ${(s:|:)found[1]}
    else
        _vmlane_lines 's/^  \([a-z][a-z-]*\)=.*/\1/p' vmlanectl set
        if [[ $command == set ]]; then
            compadd -S = -X 'setting' -a found
        else
            compadd -X 'setting' -a found
        fi
    fi ;;
*) (( CURRENT == 3 )) && _vmlane_links ;;
esac
