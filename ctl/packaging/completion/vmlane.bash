# bash completion for vmlane and vmlanectl. Commands, options and choices are asked of the programs' own --help, so that
# they are those of the installed version; links are those of `vmlanectl list`.

_vmlane_commands() { # PROGRAM
    "$1" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p'
}

_vmlane_options() { # PROGRAM COMMAND
    "$1" "$2" --help 2>/dev/null | sed -n 's/^  \(--[a-z-]*\).*/\1/p'
}

# What an option takes, as its help has it: `drop|requeue`, or a word in capitals.
_vmlane_value() { # PROGRAM COMMAND OPTION
    [[ $3 =~ ^--[a-z-]+$ ]] && "$1" "$2" --help 2>/dev/null | sed -n "s/^  $3 \\([^ ]*\\).*/\\1/p"
}

_vmlane_links() {
    vmlanectl list --json 2>/dev/null | tr ',{' '\n\n' | sed -n 's/^"name": *"\([^"]*\)"$/\1/p' | sort -u
}

_vmlane_settings() {
    vmlanectl set --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)=.*/\1/p'
}

_vmlane_reply() { # WORDS
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$word")
}

_vmlane_files() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
}

_vmlane_complete_value() { # PROGRAM COMMAND OPTION; false: the option takes none, or one nobody can guess
    local value
    value=$(_vmlane_value "$1" "$2" "$3")
    case $3:$value in
    --layout:*) _vmlane_reply "shared direction dedicated map:" ;;
    --hugepages:*) _vmlane_reply "auto on off" ;;
    --log-level:*) _vmlane_reply "error warn info debug" ;;
    --sort:*) _vmlane_reply "traffic name drops wait depth" ;;
    --stats-group:*) mapfile -t COMPREPLY < <(compgen -g -- "$word") ;;
    --link:*) [ "${1##*/}" = vmlanectl ] && _vmlane_reply "$(_vmlane_links)" ;;
    --a:* | --b:*)
        compopt -o nospace 2>/dev/null
        _vmlane_reply "$("$1" run --help 2>/dev/null | sed -n '/^Ports,/,/^Policy/s/^  \([a-z]*\):.*/\1:/p') null"
        ;;
    *:*\|*) _vmlane_reply "${value//|/ }" ;;
    *:FILE) _vmlane_files ;;
    *:[A-Z]*) ;;
    *) return 1 ;;
    esac
}

_vmlane() {
    local program=$1 word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} before=
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        _vmlane_reply "$(_vmlane_commands "$program") --help --version"
        return
    fi
    before=${COMP_WORDS[COMP_CWORD - 1]}
    if [[ $before == --* ]] && _vmlane_complete_value "$program" "$command" "$before"; then
        return
    fi
    if [[ $command == exec && " ${COMP_WORDS[*]:0:COMP_CWORD} " == *" -- "* ]]; then
        if [ "$before" = -- ]; then
            mapfile -t COMPREPLY < <(compgen -c -- "$word")
        else
            _vmlane_files
        fi
        return
    fi
    if [[ $command == check-config && $word != -* ]]; then
        _vmlane_files
        return
    fi
    if [[ $word == -* || ${program##*/} == vmlane ]]; then
        _vmlane_reply "$(_vmlane_options "$program" "$command")"
        return
    fi
    if [[ $command == capture && $before == -w ]]; then
        _vmlane_files
        return
    fi
    case $command in
    export) ((COMP_CWORD == 2)) && _vmlane_reply prometheus ;;
    plot) _vmlane_files ;;
    list | reload) ;;
    link)
        if ((COMP_CWORD == 2)); then
            _vmlane_reply "add remove"
        elif [[ ${COMP_WORDS[2]} == remove ]] && ((COMP_CWORD == 3)); then
            _vmlane_reply "$(_vmlane_links)"
        fi
        ;;
    get | set)
        if ((COMP_CWORD == 2)); then
            _vmlane_reply "$(_vmlane_links)"
        elif [ "$command" = get ]; then
            _vmlane_reply "$(_vmlane_settings)"
        elif [[ $before == "=" || $word == "=" ]]; then
            _vmlane_setting_value
        else
            compopt -o nospace 2>/dev/null
            _vmlane_reply "$(_vmlane_settings | sed 's/$/=/')"
        fi
        ;;
    *) ((COMP_CWORD == 2)) && _vmlane_reply "$(_vmlane_links)" ;;
    esac
}

# `=` is a word of its own to readline: SETTING, =, VALUE.
_vmlane_setting_value() {
    local at=$((COMP_CWORD - 2)) value
    if [[ $word == "=" ]]; then
        word="" at=$((COMP_CWORD - 1))
    fi
    case ${COMP_WORDS[at]} in
    layout) value="shared|direction|dedicated|map:" ;;
    *) value=$(_vmlane_value vmlane run "--${COMP_WORDS[at]}") ;;
    esac
    [[ $value == *"|"* ]] && _vmlane_reply "${value//|/ }"
}

complete -F _vmlane vmlane vmlanectl
