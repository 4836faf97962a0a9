#!/usr/bin/env bash
# boot: --root --timeout 900
# The Debian packages: a user's first job without any set-up, an upgrade while a job runs, and the
# removal.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$REPO/guest/lib.sh"
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
packages=$PROGRAMS/../packages
package() { echo "$packages/slotd_${1}_amd64.deb" "$packages/slotd-slurm-commands_${1}_all.deb"; }
# As root: runs a command as the user, with the PATH of a login shell.
user() { as_dev "PATH=/usr/local/bin:/usr/bin:/bin; $1"; }
fails_of_user() { user "$1" || fails=1; }

# The user's manager runs already: the package starts the socket there.
# shellcheck disable=SC2046  # two files
yes "dpkg installs both packages" dpkg -i $(package 0.0.1)
fails_of_user '
  is "the socket is up" "$(systemctl --user is-active slotd.socket)" active
  is "no daemon runs before the first command" "$(systemctl --user is-active slotd.service)" inactive
  is "a first job needs no set-up" "$(sbatch -W -o first --wrap "echo by \$SLURM_JOB_NAME; srun hostname >/dev/null && echo step" >/dev/null; cat first)" "by wrap
step"
  is "the daemon is the package'"'"'s" "$(readlink /proc/$(systemctl --user show -p MainPID --value slotd.service)/exe)" /usr/lib/slotd/bin/slotd
  has "man pages are in the packages" "$(dpkg -L slotd-slurm-commands)" /usr/share/man/man1/sbatch.1.gz
  sbatch --parsable -o long --wrap "echo begun; while [ ! -e go ]; do sleep 0.1; done; srun echo done; exit 3" >job
  until_true grep -q begun long
  systemctl --user show -p MainPID --value slotd.service >pid'
# shellcheck disable=SC2046
yes "dpkg upgrades both while a job runs" dpkg -i $(package 0.0.2)
fails_of_user '
  until_true squeue
  if [[ $(systemctl --user show -p MainPID --value slotd.service) != "$(cat pid)" ]]; then ok "the daemon was restarted"; else no "the daemon was not restarted"; fi
  has "the job runs on" "$(squeue -h -o "%A %T")" "$(cat job) RUNNING"
  touch go
  state_is "the job ends with its exit code" "$(cat job)" FAILED
  has "the exit code is recorded" "$(sacct -nXP -j "$(cat job)" -o ExitCode)" 3:0
  is "its later step ran" "$(cat long)" "begun
done"
  rm go; sbatch --parsable -o rest --wrap "echo begun; while [ ! -e go ]; do sleep 0.1; done" >job; until_true grep -q begun rest'

yes "dpkg purges both" dpkg --purge slotd-slurm-commands slotd
is "nothing is left in /usr" "$(find /usr /etc -name '*slotd*' -not -path '/usr/share/doc/*' -not -name 'slotd-vm*' 2>/dev/null; ls /usr/bin/sbatch 2>/dev/null)" ""
as_dev 'has_stopped() { [[ $(systemctl --user is-active slotd.service) != active ]]; }
  until_true has_stopped
  is "the daemon has stopped" "$(systemctl --user is-active slotd.service)" inactive
  yes "the user'"'"'s jobs and history are kept" test -e ~/.local/share/slotd/lib/state.db
  touch go' || fails=1
# shellcheck disable=SC2046
yes "dpkg installs again" dpkg -i $(package 0.0.2)
fails_of_user 'state_is "the job that ran through the removal has its end" "$(cat job)" COMPLETED'
finish
