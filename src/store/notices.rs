//! Stores notifications that have not been sent yet.

use crate::row::{from_json, to_json};
use crate::schema::notices;
use crate::{Store, StoreError};
use diesel::prelude::*;
use slotd_model::notice::Notice;

/// Stores a notification. Storing it twice has no further effect.
pub(super) fn put(
    conn: &mut SqliteConnection,
    number: u64,
    notice: &Notice,
) -> Result<(), StoreError> {
    let body = to_json("notices", "body", notice)?;
    diesel::replace_into(notices::table)
        .values((notices::number.eq(number.cast_signed()), notices::body.eq(body)))
        .execute(conn)
        .map_err(StoreError::sql("store a notification"))?;
    Ok(())
}

/// Deletes a sent notification. A missing one has been deleted already.
pub(super) fn remove(conn: &mut SqliteConnection, number: u64) -> Result<(), StoreError> {
    diesel::delete(notices::table.find(number.cast_signed()))
        .execute(conn)
        .map_err(StoreError::sql("delete a notification"))?;
    Ok(())
}

impl Store {
    /// Returns the notifications that an earlier daemon did not send, in the order in which their
    /// jobs ended. Logs and skips unreadable ones.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn untold(&mut self) -> Result<Vec<(u64, Notice)>, StoreError> {
        let rows: Vec<(i64, String)> = notices::table
            .order(notices::number)
            .load(&mut self.conn)
            .map_err(StoreError::sql("read the notifications"))?;
        let notices = rows.into_iter().filter_map(|(number, body)| {
            match from_json("notices", "body", &body) {
                Ok(notice) => Some((number.cast_unsigned(), notice)),
                Err(e) => {
                    log::error!("skipping notification {number}, which cannot be read: {e}");
                    None
                }
            }
        });
        Ok(notices.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Place, put as commit};
    use slotd_model::change::Change;
    use slotd_model::run::RunState;
    use slotd_model::{End, Job, JobId, JobState, Timestamp};

    #[test]
    fn a_notification_is_stored_until_it_is_sent() {
        let place = Place::new();
        let notice = |job_id: &str| {
            let job = Job {
                run: RunState { state: JobState::Ended(End::Failed), ..RunState::default() },
                ..Job::default()
            };
            Notice { job_id: job_id.to_owned(), ..Notice::of_end(&job, Timestamp(7)) }
        };
        let keep = |number, id| Change::PutNotice {
            number,
            job: Some(JobId(1)),
            notice: Box::new(notice(id)),
        };
        commit(&mut place.store(), vec![keep(7, "12_3"), keep(8, "4")]);
        commit(
            &mut place.store(),
            vec![keep(8, "4"), Change::DropNotice { number: 7 }, Change::DropNotice { number: 7 }],
        );
        let mut store = place.store();
        let unreadable = (notices::number.eq(9), notices::body.eq("{"));
        diesel::insert_into(notices::table).values(unreadable).execute(&mut store.conn).unwrap();
        assert_eq!(store.untold().unwrap(), [(8, notice("4"))]);
    }
}
